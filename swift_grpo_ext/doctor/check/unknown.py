"""A value that the launch takes from somewhere else is a value, too."""

from typing import Any, NoReturn

from swift_grpo_ext.findings import NotKnownError

PLUGIN = "<swift-grpo-ext>"
"""Stands for the output of $(swift-grpo-ext path)."""


class Unknown:
    """A value that is not known here, like ``pandas.NA``.

    What is compared with it or computed from it is not known either. Deciding on it (`bool`, `len`, `int`,
    `str`, iterating, ...) raises `NotKnownError`, which the engine of the rules reports as not known.

    >>> ranks = Unknown("NPROC_PER_NODE ($N)")
    >>> ranks * 8 > 16
    Unknown('NPROC_PER_NODE ($N)')
    """

    def __init__(self, name: str, *, many: bool = False) -> None:
        self.name = name  # what it is, as the user wrote it
        self.many = many  # of a word of a script: it may stand for any number of words, options among them

    def __repr__(self) -> str:
        return f"Unknown({self.name!r})"

    def _same(self, *_others: Any, **_named: Any) -> "Unknown":
        return self

    def _decide(self, *_others: Any) -> NoReturn:
        """Nothing can be decided.

        Raises:
            NotKnownError: always.
        """
        raise NotKnownError(self.name)

    def __getattr__(self, name: str) -> "Unknown":
        """A method or an attribute of the value, which is not known either.

        Raises:
            AttributeError: of a name that begins with two underscores.
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
"""A word of a command: its text, or that the script does not say it."""


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
