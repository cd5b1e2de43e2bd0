"""Takes a patch off again, which only tests want: a run keeps its patches."""

from swift_grpo_ext.compat import registry
from swift_grpo_ext.defects import PATCHED


def revert(patch_id):
    """The patch's target is the very object that it was before."""
    outcome = registry._outcomes.pop(patch_id)
    PATCHED.discard(patch_id)
    if outcome.target is not None:
        outcome.target.restore()
