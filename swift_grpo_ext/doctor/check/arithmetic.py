"""The shell's whole-number arithmetic, ``$((8 * 2))`` and ``$(expr 16 / 8)``, without a shell."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

_TOKEN = re.compile(r"\s*(\d+|[A-Za-z_]\w*|[-+*/%()])")
_PRODUCTS: Mapping[str, Callable[[int, int], int]] = {
    "*": lambda a, b: a * b,
    "/": lambda a, b: _quotient(a, b),
    "%": lambda a, b: a - _quotient(a, b) * b,
}
_SUMS: Mapping[str, Callable[[int, int], int]] = {"+": lambda a, b: a + b, "-": lambda a, b: a - b}
_LONGEST = 100  # characters; longer ones are left as they are written


def calculated(text: str, variables: Mapping[str, str]) -> int | None:
    """The value of an expression of + - * / % and brackets; None for what is not known or none.

    Args:
        text: The expression; names may stand with or without ``$``.
        variables: Values by name.
    """
    text = re.sub(r"\$\{?(\w+)\}?", r"\1", text).replace("\\*", "*").strip()
    words = _TOKEN.findall(text)
    if len(text) > _LONGEST or "".join(words) != re.sub(r"\s", "", text):
        return None
    try:
        parser = _Parser(words, variables)
        value = parser.sum()
    except (LookupError, ValueError, ZeroDivisionError):
        return None
    return None if parser.words else value


def _quotient(dividend: int, divisor: int) -> int:
    """Rounded towards 0, as the shell does."""
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


class _Parser:
    def __init__(self, words: list[str], variables: Mapping[str, str]) -> None:
        self.words, self.variables = words[::-1], variables

    def sum(self) -> int:
        return self._chain(self._product, _SUMS)

    def _product(self) -> int:
        return self._chain(self._atom, _PRODUCTS)

    def _chain(self, part: Callable[[], int], operators: Mapping[str, Callable[[int, int], int]]) -> int:
        value = part()
        while self.words and self.words[-1] in operators:
            value = operators[self.words.pop()](value, part())
        return value

    def _atom(self) -> int:
        word = self.words.pop()
        if word == "-":
            return -self._atom()
        if word == "(":
            value = self.sum()
            if self.words.pop() != ")":
                raise ValueError("a bracket is open")
            return value
        return int(word if word.isdecimal() else self.variables[word])
