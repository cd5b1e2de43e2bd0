"""The spec card of a reward: its docstring, taken apart."""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import dataclass

from swift_grpo_ext.rewards.contract import Reward

SECTIONS = ("Args", "Gold", "None", "Rises with", "Gaming", "Frame", "Source", "Example")
"""In the order in which a card has them; ``Args`` only if the reward has parameters."""

_HEADING = re.compile(rf"^({'|'.join(SECTIONS)}):\n", re.MULTILINE)
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
        heading: textwrap.dedent(text).strip() for heading, text in zip(parts[::2], parts[1::2], strict=True)
    }
    shared = [inspect.getdoc(group) or "" for group in reward.declared.groups.values()]
    arguments = "\n".join(textwrap.dedent(text.partition("Attributes:\n")[2]) for text in shared)
    return Card(summary, description.strip(), sections, arguments)
