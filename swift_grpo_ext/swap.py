"""One way to give an object another attribute for a while."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def swapped(owner: object, name: str, value: object) -> Iterator[None]:
    """While this is open, ``owner.name`` is ``value``; then it is as before, its class's own included."""
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
