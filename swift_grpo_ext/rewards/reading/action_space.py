"""One action on a screen, and how action spaces write it: words, and calls with arguments; never run."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from swift_grpo_ext.rewards.reading.json_text import Json, literal
from swift_grpo_ext.rewards.reading.region import Region, pointed_at
from swift_grpo_ext.rewards.reading.schema import by_word
from swift_grpo_ext.rewards.reading.words import ACTIONS

KINDS: dict[str, tuple[str, str]] = {
    word: (meaning.split(" ")[0], meaning.partition(" ")[2])
    for word, meaning in by_word(ACTIONS.kinds).items()
}
"""Word to the kind of action and the text that it says by itself: "scroll_up" to scroll, up."""
_ARGUMENTS = {name.replace("_", ""): role for name, role in by_word(ACTIONS.arguments).items()}
_KEY_WORDS = by_word(ACTIONS.keys)
_STATUSES = by_word(ACTIONS.statuses)
DIRECTIONS = by_word(ACTIONS.directions)
BUTTONS = by_word(ACTIONS.buttons)

# "+": between keys of "ctrl+c"
_SEPARATOR = re.compile(r"[\s+,_-]+")
# "click("
_CALL = re.compile(r"(?<![A-Za-z0-9_])((?:[A-Za-z_]{2,16}\.)?[A-Za-z][A-Za-z_0-9]{1,30})\s{0,4}\(")
# "x=10,"
_ARGUMENT = re.compile(
    r"\s{0,8}(?:([A-Za-z_]\w{0,40})\s{0,4}=\s{0,4})?(\"(?:[^\"\\]|\\.){0,4096}\"|'(?:[^'\\]|\\.){0,4096}'"
    r"|(?:\[[^\[\]]{0,256}\]|\[\[[^\[\]]{0,256}\]\]|\([^()]{0,256}\))|[^,()\[\]\"'=]{1,256})\s{0,8}(,|\)|\Z)",
    re.DOTALL,
)
_MAX_ARGUMENTS = 16
# r"\n"
_ESCAPED = re.compile(r"\\([nt\"'\\])")
_ESCAPES = {"n": "\n", "t": "\t"}


@dataclass(frozen=True)
class Action:
    """One action on the screen."""

    kind: str  # ``click``, ``type``, ``scroll`` ... in one spelling
    target: Region | None = None  # where it is or starts: a point, or for a gold a box
    text: str = ""  # what is typed, the direction, the keys, the app, the status
    end: Region | None = None  # where a drag or swipe ends
    seconds: float | None = None  # how long it waits
    unknown: tuple[str, ...] = ()  # names of arguments that are not known

    @property
    def towards(self) -> str:
        """The direction of a swipe that is given by its two ends, "" for any other action."""
        if self.target is None or self.end is None or self.text:
            return ""
        x1, y1 = pointed_at(self.target)
        x2, y2 = pointed_at(self.end)
        right = x2 - x1
        down = y2 - y1
        if abs(right) > abs(down):
            return "right" if right > 0 else "left"
        return "down" if down > 0 else "up" if down < 0 else ""


def word_of(name: str) -> str:
    """A name of an action in the spelling of the table."""
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.strip()[:64])
    plain = re.sub(r"[\s-]+", "_", plain.casefold())
    return plain if plain in KINDS else plain.rpartition(".")[2]


def argument_of(name: str) -> str:
    """What an argument of this name holds, "" for one that is not known."""
    return _ARGUMENTS.get("".join(filter(str.isalnum, name[:64].casefold())), "")


def keys_of(text: str) -> frozenset[str]:
    """The keys of a combination: ``Ctrl+C``, ``ctrl c``."""
    parts = [part for part in _SEPARATOR.split(text.strip().casefold()) if part not in ("", "press", "key")]
    return frozenset(_KEY_WORDS.get(part, part) for part in parts)


def status_of(text: str) -> str:
    """``success``, ``failure``, or "" for a text that is neither."""
    return _STATUSES.get(text.strip().casefold() or "success", "")


def direction_of(text: str) -> str:
    """The direction that a text names alone, "" if none or several."""
    words = re.findall(r"[a-z]+|[上下左右]", text.casefold())
    named = {DIRECTIONS[word] for word in words if word in DIRECTIONS}
    return named.pop() if len(named) == 1 else ""


def calls_in(text: str) -> Iterator[tuple[int, dict[str, Json]]]:
    """Where each call of a text starts, and its arguments; those without a name as ``text``, ``x``, ``y``."""
    at = 0
    start = _CALL.search(text)
    while start:
        at = start.end()
        name = word_of(start[1])
        arguments: dict[str, Json] = {"action": start[1]}
        bare: list[Json] = []
        closed = text[at : at + 1] == ")"
        left = _MAX_ARGUMENTS
        while left and not closed and (argument := _ARGUMENT.match(text, at)):
            key, raw, following = argument.groups()
            if key:
                arguments[key] = _value(raw.strip())
            else:
                bare.append(_value(raw.strip()))
            at = argument.end()
            closed = following != ","
            left = left - 1
        before = text[max(0, start.start() - 4) : start.start()].strip()
        if name in KINDS or (closed and before[-1:] in ("", "[", ",", "(")):
            yield start.start(), arguments | _positional(KINDS.get(name, ("", ""))[0], bare)
        start = _CALL.search(text, at)


def _positional(kind: str, bare: list[Json]) -> dict[str, Json]:
    """Arguments without names: places, numbers as x and y, texts."""
    numbers = [value for value in bare if isinstance(value, (int, float))]
    texts = [value for value in bare if isinstance(value, str)]
    places = [value for value in bare if isinstance(value, list)]
    arguments: dict[str, Json] = {}
    if len(numbers) == 1 and kind in ("scroll", "hscroll", "wait"):
        arguments["seconds" if kind == "wait" else "pixels"] = numbers[0]
    elif len(numbers) == 2:
        arguments["coordinate"] = numbers
    elif len(numbers) == 4 and kind in ("drag", "swipe"):
        arguments |= {"start": numbers[:2], "end": numbers[2:]}
    elif len(numbers) == 4:
        arguments["bbox"] = numbers
    arguments |= dict(zip(("coordinate", "coordinate2"), places, strict=False))
    if texts:
        arguments |= {"keys": " ".join(texts)} if kind == "key" else {"text": texts[0]}
    return arguments


def _value(raw: str) -> Json:
    if raw[:1] in "\"'" and len(raw) > 1:
        return _ESCAPED.sub(lambda escape: _ESCAPES.get(escape[1], escape[1]), raw[1:-1])
    values = literal(raw) if raw[:1] in "[(-.0123456789" else []
    value = values[0] if values else raw
    return list(value) if isinstance(value, tuple) else value
