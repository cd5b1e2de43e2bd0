"""Text of a row that must stay text: special tokens and media tags that somebody merely wrote.

Tokenizers turn ``<|im_end|>`` in a question into the control token, ms-swift ``<image>`` in an answer into an
image. A marker behind the first character prevents that; `split_at_marker` takes it out again.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from swift_grpo_ext.errors import DatasetRowError

MARKER = "\ufdd0"  # a Unicode noncharacter: not for the exchange of text, so no dataset has it
MEDIA = ("image", "video", "audio")
ANSWERS = ("assistant", "tool_call")  # roles of what the model writes
ASKS = ("user", "tool_response", "tool")  # roles of what a completion follows
TAGS = tuple(f"<{medium}>" for medium in MEDIA)
Message = Mapping[str, Any]
# What the host's templates raise for a row of another form, such as a box of an image that is not there.
HOST_REFUSES = (ValueError, TypeError, LookupError, AttributeError, AssertionError, ZeroDivisionError)
_OLD_FORM = re.compile(r"<img>([^<]+)</img>")
_SHOWN = 60


def keep_as_text(text: str, pieces: Iterable[str]) -> str:
    """Mark each occurrence of special tokens or tags, so that they are tokenized as plain text."""
    pattern = _any_of(tuple(sorted(set(pieces), key=len, reverse=True)))
    text = text.replace(MARKER, "")
    return pattern.sub(lambda match: match[0][0] + MARKER + match[0][1:], text) if pattern else text


def split_at_marker(text: str) -> list[str]:
    """Pieces of a text that are tokenized one by one, so that none of them forms a special token."""
    return text.split(MARKER)


def check_tags(system: str | None, messages: Sequence[Message], given: Mapping[str, int]) -> bool:
    """Compare media tags with the media, and say whether those in answers stand for media.

    A model may write ``<image>`` into its answer: text, unless the number of media says otherwise. For none
    ms-swift puts the media before the first message.

    Raises:
        DatasetRowError: Tags and media differ in number.
    """
    asked = [message for message in messages if message["role"] not in ANSWERS]
    answers_hold_tags = False
    for medium in MEDIA:
        tag = f"<{medium}>"
        number = given.get(medium, 0)
        in_prompt = _occurrences(tag, asked) + (system or "").count(tag)
        in_answers = _occurrences(tag, messages) - _occurrences(tag, asked)
        if in_prompt == number or (number and in_prompt + in_answers in (0, number)):
            answers_hold_tags |= in_prompt != number and in_answers > 0
        elif not (number and in_prompt == 0):
            raise DatasetRowError(
                f"{in_prompt} {tag} tags for {number} {medium}s",
                where=label(messages),
                fix=f"one {tag} for each {medium} of the row, or none at all",
            )
    return answers_hold_tags


def why_no_completion(messages: Sequence[Message]) -> str:
    """Reason why no completion can follow messages without their answer, in a clause; empty if one can."""
    role = messages[-1]["role"] if messages else "nobody"
    return "" if role in ASKS else f"before an answer stands the role {role!r}, and not user or tool_response"


def label(messages: Sequence[Message]) -> str:
    """How an error names a row: the beginning of its first question."""
    asked = _texts(message for message in messages if message["role"] == "user")
    return (
        f"the row that asks {asked[0][:_SHOWN].replace(MARKER, '')!r}"
        if asked
        else "a row without a question"
    )


def image_paths(messages: Iterable[Message]) -> list[str]:
    """Paths in ms-swift's old ``<img>path</img>`` form."""
    return [path for text in _texts(messages) for path in _OLD_FORM.findall(text)]


def _occurrences(tag: str, messages: Iterable[Message]) -> int:
    return sum(text.count(tag) for text in _texts(messages))


def _texts(messages: Iterable[Message]) -> list[str]:
    contents = (message.get("content") for message in messages)
    return [content for content in contents if isinstance(content, str)]


@lru_cache(maxsize=8)
def _any_of(pieces: Sequence[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(map(re.escape, pieces))) if pieces else None
