"""Swaps an attribute of an object for a while."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def swapped(owner: object, name: str, value: object) -> Iterator[None]:
    """Set ``owner.name`` to ``value`` in the block and undo it after, even where only the class has it."""
    had = name in vars(owner)
    before = vars(owner).get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if had:
            setattr(owner, name, before)
        else:
            delattr(owner, name)
