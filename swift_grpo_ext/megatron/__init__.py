"""The GRPO trainer of ms-swift's other engine, Megatron: the same wiring of `swift_grpo_ext.group` there.

What trains on one node with transformers trains on many with Megatron. `trainer.py` names what is changed, in
the order of calls; what both engines share is in `swift_grpo_ext.trainer`.
"""

import sys
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.versions import package_facts

ENGINE = ("megatron-core", "mcore-bridge")
HOST = "swift.megatron.trainers.grpo_trainer"
RAY = "swift.ray.megatron.pipeline"


def register() -> list[str]:
    """Make ms-swift build our trainer for ``megatron rlhf --rlhf_type grpo``, with and without Ray."""
    from wrapt import register_post_import_hook

    facts = [fact for fact in package_facts() if fact.name in ENGINE]
    if not all(fact.installed for fact in facts):
        return []  # nothing trains with Megatron here
    if problem := next((fact.problem for fact in facts if fact.problem), ""):
        _off(f"{problem}, the release that it was tested with")
        return []
    register_post_import_hook(partial(_join, "trainer"), HOST)
    register_post_import_hook(partial(_join, "ray_driver"), RAY)
    return ["grpo"]


def _off(why: Any) -> None:
    print(f"swift-grpo-ext: the part megatron is off: {why}", file=sys.stderr, flush=True)


def _join(ours: str, host: ModuleType) -> None:
    """Let classes of ours take the places of those in a module of ms-swift, or say why not."""
    try:
        import_module(f"{__name__}.{ours}").join(host)
    except (ImportError, AttributeError, RefusedError) as error:  # something that we change is gone
        _off(error)
