"""Every method that a class of ours overrides is looked up in ms-swift's class, which may have lost it."""

from types import FunctionType

from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.versions import HOST, HOST_RANGE, installed_version


def require_overridden(ours: type, theirs: type, part: str, new: str = "") -> None:
    """Check that ``theirs`` has each method and class that ``ours`` defines: ms-swift calls no other.

    Args:
        ours: A subclass that only overrides; a member that is not a method or class (a property) may be new.
        theirs: ms-swift's class.
        part: The part of this package that can be left out instead.
        new: A method that is called by us.

    Raises:
        RefusedError: ms-swift has lost some of them, which are named.
    """
    gone = [
        name
        for name, value in vars(ours).items()
        if isinstance(value, (FunctionType, type))
        and not name.startswith("__")
        and name != new
        and not hasattr(theirs, name)
    ]
    if gone:
        raise RefusedError(
            f"{HOST} {installed_version(HOST)} has no {', '.join(gone)}, so what replaces it would never run",
            where=f"{theirs.__module__}.{theirs.__qualname__}",
            fix=f"install {HOST} {HOST_RANGE}, or set SWIFT_GRPO_EXT_DISABLE={part}",
        )
