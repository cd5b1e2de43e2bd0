"""JSON in the text of a model or a data set: strict, or with Python quotes; a key given twice is an error."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

# What JSON decodes to; columns of a data set may hold tuples, and literals of Python, too.
Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

_WORDS = {"True": "true", "False": "false", "None": "null"}
MAX_LITERAL = 2_000  # characters of a literal of Python
# Python's own forms: 'text', True, (1, 2), a comma behind the last item. A text in double quotes stays as it
# is, and so does everything behind a quote that nothing closes.
_PYTHON = re.compile(
    r"'((?:[^'\\]|\\.)*)'|\"(?:[^\"\\]|\\.)*\"|['\"].*|\b(True|False|None)\b|([()]|,(?=\s{0,64}[\])}]))",
    re.DOTALL,
)


def first_value(text: str) -> Json:
    """The JSON value that a text begins with; behind it may stand brackets and fences that close nothing.

    Raises:
        ValueError: As `strict` says, or something else stands behind it.
        RecursionError: It is nested too deep.
    """
    value: Json
    value, end = DECODER.raw_decode(text)
    if text[end:].strip(" \t\r\n]}`"):
        raise ValueError("something stands behind it")
    return value


def strict(text: str) -> Json:
    """Decode a JSON value strictly.

    Raises:
        ValueError: It is not JSON, holds NaN or an infinity, or gives a key twice.
        RecursionError: It is nested too deep.
    """
    value: Json = DECODER.decode(text)
    return value


def once_each(pairs: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
    """An object from its pairs, each key once: of two values for a key nobody can say which is meant.

    Raises:
        ValueError: A key stands there twice.
    """
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key stands there twice")
    return made


def _refused(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


DECODER = json.JSONDecoder(object_pairs_hook=once_each, parse_constant=_refused)


def literal(text: str) -> Json:
    """A literal of Python, such as ``[{'action': 'click', 'point': (1, 2)}]``, read as JSON; never evaluated.

    Raises:
        ValueError: It is not a literal, or as `strict` says.
        RecursionError: It is nested too deep.
    """
    return strict(_PYTHON.sub(_as_json, text if len(text) <= MAX_LITERAL else ""))


def _as_json(part: re.Match[str]) -> str:
    text, word, bracket = part.groups()
    if text is not None:
        quoted = text.replace("\\'", "'").replace('\\"', '"').replace('"', '\\"')
        return f'"{quoted}"'
    return _WORDS[word] if word else {"(": "[", ")": "]", ",": ""}.get(bracket, part[0])


def decoded(value: Json, *decoders: Callable[[str], Json], otherwise: Any = None) -> Any:
    """A text by the first decoder that can read it, else `otherwise`; any other value stays as it is."""
    if not isinstance(value, str):
        return value
    for decode in decoders:
        with suppress(ValueError, RecursionError):
            return decode(value)
    return otherwise
