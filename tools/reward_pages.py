"""Writes docs/rewards from the spec cards: one page for each reward, and an index.

python tools/reward_pages.py           write them
python tools/reward_pages.py --check   exit code 1 if they are not current
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import textwrap
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType, NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from swift_grpo_ext.rewards.catalogue import MODULES, PREFIX, all_rewards
from swift_grpo_ext.rewards.contract import Reward

FOLDER = Path(__file__).parents[1] / "docs" / "rewards"
INDEX = "README.md"
BY_HAND = "write-your-own.md"
PLACE = "where-an-answer-stands.md"
# Pages, and the rewards on each.
KINDS = {
    "boxes-and-points": ["iou", "giou", "detection_f1", "point_in_box"],
    "actions-and-time": ["click", "tool_call", "temporal_iou"],
    "numbers": ["count", "count_shaped", "numeric", "math"],
    "choices": ["choice", "yes_no", "answer"],
    "text": ["ocr", "wer", "anls", "text_f1", "rouge", "table", "json_schema", "judge"],
    "form-and-length": ["format", "repetition"],
}
PAGE_OF = {f"{PREFIX}{name}": f"{kind}.md" for kind, names in KINDS.items() for name in names}
# The files of `rewards/values` whose grammar a module's rewards read.
VALUES = {
    "grounding": ["regions"],
    "detection": ["regions"],
    "click": ["action"],
    "tool_use": ["tool_call"],
    "temporal": ["span"],
    "counting": ["count"],
    "choice": ["choice"],
    "yes_no": ["yes_no"],
    "numeric": ["number"],
    "math_equality": ["mathematics"],
    "mixed": ["choice", "yes_no", "number", "mathematics", "text"],
    "ocr": ["text"],
    "text_overlap": ["text"],
}
RUNS = {
    "inline": "in the trainer's process, in linear time",
    "process": "in child processes that are killed at their limit",
    "async": "awaited, many at a time, with a limit",
}
HEADINGS = {
    "Gold": "Gold",
    "Raises": "Not scored",
    "Rises with": "Rises with",
    "Gaming": "How it might be gamed, and the test that shows what comes of it",
    "Frame": "Coordinate frame",
    "Source": "Source",
}
BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
NAMES = {int: "integer", float: "number", str: "text", bool: "true or false"}


SECTIONS = ("Args", "Gold", "Raises", "Rises with", "Gaming", "Frame", "Source", "Example")
"""In the order in which a card has them; ``Args`` only if the reward has parameters."""
UNSAID = ("None.", "Declared by `frame` and `gold_frame`; with both the same, no size is needed.")
"""Section ``Frame`` of a card that has none: of a reward without places, and of one with."""

IMPORT = ">>> from swift_grpo_ext import get_reward"
"""First line of every example, which a card may leave unsaid, too."""

_HEADING = re.compile(rf"^({'|'.join(SECTIONS)}):(?=[ \n])", re.MULTILINE)
_ARGUMENT = re.compile(r"^(\w+): ", re.MULTILINE)


@dataclass(frozen=True)
class Card:
    """A spec card.

    Attributes:
        summary: Its first paragraph.
        description: What follows until the first section.
        sections: Heading to text, without its indentation.
        shared: Parameters that it shares with other rewards, as text of an ``Args`` section.
    """

    summary: str
    description: str
    sections: dict[str, str]
    shared: str = ""

    @property
    def arguments(self) -> dict[str, str]:
        """Name and meaning of each parameter, the meaning on one line."""
        _, *parts = _ARGUMENT.split("\n".join((self.sections.get("Args", ""), self.shared)))
        return {name: " ".join(text.split()) for name, text in zip(parts[::2], parts[1::2], strict=True)}


def card_of(reward: Reward) -> Card:
    """Take a reward's docstring apart."""
    head, *parts = _HEADING.split(inspect.getdoc(reward.function) or "")
    summary, _, description = head.strip().partition("\n\n")
    sections = {
        heading: inspect.cleandoc(text).strip() for heading, text in zip(parts[::2], parts[1::2], strict=True)
    }
    # A row that a reward raises `Unscorable` on is not scored; other errors end a run.
    unscorable = sections.get("Raises", "Unscorable: Never.").partition("Unscorable: ")[2]
    sections["Raises"] = " ".join(re.split(r"\n(?=[A-Z]\w+Error: )", unscorable)[0].split())
    sections.setdefault("Frame", UNSAID["frame" in reward.parameters])
    if IMPORT not in sections.get("Example", IMPORT):
        sections["Example"] = f"{IMPORT}\n{sections['Example']}"
    sections = {name: sections[name] for name in SECTIONS if name in sections}
    classes = [one for group in reward.declared.groups.values() for one in reversed(group.__mro__)]
    shared = [inspect.getdoc(one) or "" for one in classes]
    arguments = "\n".join(textwrap.dedent(text.partition("Attributes:\n")[2]) for text in shared)
    return Card(summary, description.strip(), sections, arguments)


def pages() -> dict[str, str]:
    """File name to text of every page."""
    rewards = all_rewards()
    made: dict[str, str] = {}
    for name, reward in rewards.items():
        kind = PAGE_OF[name]
        title = kind.removesuffix(".md").replace("-", " ").capitalize()
        head = f"<!-- made by tools/reward_pages.py from the docstrings of the rewards -->\n# {title}\n"
        made[kind] = f"{made.get(kind, head)}\n{page(reward)}"
    return {PLACE: place_page(), **made, INDEX: index(rewards)}


def place_page() -> str:
    """Where an answer stands, and the grammar of each kind of value: the docstrings of these modules."""
    names = dict.fromkeys(name for listed in VALUES.values() for name in listed)
    blocks = [
        "<!-- made by tools/reward_pages.py from swift_grpo_ext/rewards/place.py and values/ -->\n"
        "# Where an answer stands",
        prose(import_module("swift_grpo_ext.rewards.place")),
        "Anything else is 0, with a reason: `unread: 'I think it is 4' is no count (a whole number, or zero "
        "to twenty)`. What was read and the reason stand beside the completion in `completions.jsonl`, in "
        "the report and in `swift-grpo-ext score`. A gold is read by the same grammar, or not scored.",
        *(f"## {name.replace('_', ' ').capitalize()}\n\n{grammar(name)}" for name in names),
    ]
    return "\n\n".join(blocks) + "\n"


def grammar(name: str) -> str:
    """The grammar of a kind of value, with its examples."""
    return prose(import_module(f"swift_grpo_ext.rewards.values.{name}"))


def prose(module: ModuleType) -> str:
    """A module's docstring as Markdown, its examples as code."""
    blocks = (inspect.getdoc(module) or "").split("\n\n")
    return "\n\n".join(
        f"```python\n{block}\n```" if block.startswith(">>>") else markdown(block) for block in blocks
    )


def index(rewards: dict[str, Reward]) -> str:
    """The list of all rewards."""
    lines = [
        f"| {_link(name)} | {reward.low:g} to {reward.high:g} | {cell(card_of(reward).summary)} |"
        for name, reward in rewards.items()
    ]
    return "\n".join(
        [
            "<!-- made by tools/reward_pages.py -->",
            "# Rewards",
            "",
            'Names for `--reward_funcs`, with `--external_plugins "$(swift-grpo-ext path)"`. '
            f"First read [where an answer stands]({PLACE}). None fits? [Write your own]({BY_HAND}).",
            "",
            "| name | range | score |",
            "|---|---|---|",
            *lines,
            "",
        ]
    )


def page(reward: Reward) -> str:
    """The page of one reward."""
    card = card_of(reward)
    module = MODULES[reward.name.removeprefix(PREFIX)]
    blocks = [
        f"## {reward.name}",
        f"From `swift_grpo_ext/rewards/{module}.py`.",
        markdown(card.summary),
        markdown(card.description),
        facts(reward),
        parameters(reward, card.arguments),
        answer_section(reward),
        *(f"### {title}\n\n{markdown(card.sections[name])}" for name, title in HEADINGS.items()),
        f"### Example\n\n```python\n{card.sections['Example']}\n```",
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def answer_section(reward: Reward) -> str:
    """What an answer is; empty for a reward that compares with no gold."""
    if not reward.gold:
        return ""
    module = MODULES[reward.name.removeprefix(PREFIX)]
    grammars = [grammar(name) for name in VALUES.get(module, [])]
    head = f"### What is read\n\nWhat stands [where the answer does]({PLACE}), and has to be all of it:"
    return "\n\n".join([head, *grammars]) if grammars else ""


def facts(reward: Reward) -> str:
    """What the code says about the reward, as a table."""
    others = reward.reads
    rows = {
        "range": f"{reward.low:g} to {reward.high:g}",
        "runs": RUNS[reward.cost],
        "gold columns": code(reward.gold) or "none",
        "other columns": code(others) or "none",
        "from Python": f"`swift_grpo_ext.get_reward('{reward.name}')(completion, row)`",
    }
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows.items())])


def parameters(reward: Reward, meanings: dict[str, str]) -> str:
    """The parameters as a table; empty without any."""
    if not reward.parameters:
        return ""
    hints = reward.declared.hints
    rows = [
        [f"`{name}`", cell(type_in_words(hints[name])), code([shown(default)]), cell(meanings[name])]
        for name, default in reward.parameters.items()
    ]
    lines = [["name", "type", "default", "meaning"], ["---"] * 4, *rows]
    where = "In the reward table (`SWIFT_GRPO_EXT_REWARD_TABLE`), or behind the name in `--reward_funcs`."
    return f"### Parameters\n\n{where}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)


def type_in_words(hint: Any) -> str:
    """A parameter's type and range."""
    if get_origin(hint) is Annotated:
        base, field = get_args(hint)
        bounds = [
            f"{word} {getattr(bound, name):g}"
            for bound in field.metadata
            for name, word in BOUNDS.items()
            if getattr(bound, name, None) is not None
        ]
        return ", ".join([type_in_words(base), *bounds])
    if get_origin(hint) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(hint))
    options = [option for option in get_args(hint) if option is not NoneType]
    return type_in_words(options[0]) if options else NAMES[hint]


def shown(default: Any) -> str:
    """A default as the reward table would hold it."""
    return default if default and isinstance(default, str) else json.dumps(default)


def markdown(text: str) -> str:
    """A docstring's text as Markdown: code marks, links between rewards, names of tests as code."""
    text = re.sub(r"``(.+?)``", r"`\1`", text, flags=re.DOTALL)
    text = re.sub(r"`(ext_\w+)`", lambda match: _link(match[1]), text)
    return re.sub(r"\((test_\w+)\)", r"(`\1`)", text)


def _link(name: str) -> str:
    page_of = PAGE_OF.get(name)
    return f"[`{name}`]({page_of}#{name})" if page_of else f"`{name}`"


def cell(text: str) -> str:
    """A text inside a table."""
    return markdown(text).replace("|", "\\|")


def code(names: Any) -> str:
    """Names, each as code."""
    return ", ".join(f"`{name}`" for name in names)


def main() -> int:
    """Write the pages, or compare them with what is there."""
    made = pages()
    there = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    there.pop(BY_HAND, None)
    if "--check" in sys.argv[1:]:
        old = sorted(name for name in {*made, *there} if made.get(name) != there.get(name))
        if old:
            print(f"not current: {', '.join(old)}; run python tools/reward_pages.py", file=sys.stderr)
        return int(bool(old))
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in {*there} - {*made}:
        (FOLDER / name).unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
