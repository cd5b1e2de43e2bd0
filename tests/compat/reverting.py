"""Takes a patch off again, which only tests want: a run keeps its patches."""

from swift_grpo_ext.compat import patch, registry
from swift_grpo_ext.defects import PATCHED


def restore(target):
    """Put back the very object that a patch replaced."""
    if target._before is patch._ABSENT:
        delattr(target.owner, target.name)
    else:
        setattr(target.owner, target.name, target._before)


def revert(patch_id):
    """The patch's target is the very object that it was before."""
    outcome = registry._outcomes.pop(patch_id)
    PATCHED.discard(patch_id)
    if outcome.target is not None:
        restore(outcome.target)
