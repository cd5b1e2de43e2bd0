"""Says each message once, however often it occurs."""

from collections.abc import Callable


class Once:
    """Hands each message on once; ``say`` decides where it goes, and on which rank."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        self._said: set[str] = set()

    def __call__(self, message: str, about: str = "") -> None:
        """Say a message, unless it, or another one about the same thing, was said before."""
        subject = about or message
        if subject not in self._said:
            self._said.add(subject)
            self._say(message)
