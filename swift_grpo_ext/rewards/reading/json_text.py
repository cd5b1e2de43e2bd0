"""JSON in the text of a model: strict, in single quotes, with bare keys, or the parts of one with a fault."""

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias, TypeVar

# What JSON decodes to; columns of a data set may hold tuples, and literals of Python, too.
Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
_T = TypeVar("_T")

# "{\"x\": 1}"
_FLAT = re.compile(r"\{[^{}:]{1,256}:[^{}]{0,1024}\}")


# "["
_OPENING = re.compile(r"[\[{]")


# "{x: of {x: 1}"
_BARE_KEY = re.compile(r"([{,]\s{0,8})([A-Za-z_]\w{0,40})(?=\s{0,8}:)")


_DECODER = json.JSONDecoder()


def json_values(text: str) -> list[Json] | None:
    """All JSON lists and objects in a text, also in single quotes; None at a bracket that is not JSON."""
    if "'" in text and '"' not in text:
        text = text.replace("'", '"')
    values = []
    opening = _OPENING.search(text)
    while opening:
        try:
            value, end = _DECODER.raw_decode(text, opening.start())
        except (ValueError, RecursionError):
            return None
        values.append(value)
        opening = _OPENING.search(text, end)
    return values


def values_in(text: str) -> list[Json]:
    """Like `json_values`; of a text with a fault, each innermost object that can be read."""
    if (values := json_values(text)) is not None:
        return values
    return [value for flat in _FLAT.findall(text) for value in literal(flat)]


def literal(text: str) -> list[Json]:
    """A short text as JSON, as a literal of Python, or as JSON with bare keys; empty if it is none."""
    quoted = _BARE_KEY.sub(r'\1"\2"', text.replace("'", '"'))
    return decoded(text, json.loads, ast.literal_eval) or decoded(quoted, json.loads)


def decoded(text: str, *decoders: Callable[[str], _T]) -> list[_T]:
    """What the first of these decoders that can makes of a text, in a list; empty if none can."""
    for decode in decoders:
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            return [decode(text)]
    return []
