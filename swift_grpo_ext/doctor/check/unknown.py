"""Placeholder for values that the launch takes from somewhere else."""

from typing import Any, NoReturn

from swift_grpo_ext.findings import NotKnownError

PLUGIN = "<swift-grpo-ext>"
"""Stands for the output of $(swift-grpo-ext path)."""


class Unknown:
    """A value that is not known here, like ``pandas.NA``.

    Comparisons and arithmetic with it give an `Unknown`, too. Deciding on it (`bool`, `len`, `int`, `str`,
    iterating, ...) raises `NotKnownError`, which the rule engine reports as not known.

    >>> ranks = Unknown("NPROC_PER_NODE ($N)")
    >>> ranks * 8 > 16
    Unknown('NPROC_PER_NODE ($N)')
    """

    def __init__(self, name: str, *, many: bool = False) -> None:
        self.name = name  # its text, as the user wrote it
        self.many = many  # for a word of a script: it may expand to any number of words, also options

    def __repr__(self) -> str:
        return f"Unknown({self.name!r})"

    def _same(self, *_others: Any, **_named: Any) -> "Unknown":
        return self

    def _decide(self, *_others: Any) -> NoReturn:
        """Refuse to decide on the value.

        Raises:
            NotKnownError: always.
        """
        raise NotKnownError(self.name)

    def __getattr__(self, name: str) -> "Unknown":
        """A method or an attribute of the value, which is unknown, too.

        Raises:
            AttributeError: the name begins with two underscores.
        """
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _same  # type: ignore[assignment]
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __call__ = __getitem__ = _same
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __neg__ = _same
    __bool__ = __len__ = __iter__ = __contains__ = __hash__ = __fspath__ = _decide
    __int__ = __float__ = __index__ = __str__ = _decide


Word = str | Unknown
"""A word of a command: its text, or `Unknown` if the script does not determine it."""


def written(word: Word) -> str:
    """A word as the script writes it."""
    return word.name if isinstance(word, Unknown) else word


def decided(value: Any) -> Any:
    """A value that must be known.

    Raises:
        NotKnownError: it is not.
    """
    if isinstance(value, Unknown):
        raise NotKnownError(value.name)
    return value
