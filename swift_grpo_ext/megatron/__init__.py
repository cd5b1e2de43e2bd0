"""The GRPO trainer of ms-swift's other engine, Megatron: the same wiring of `swift_grpo_ext.group` there.

What trains on one node with transformers trains on many with Megatron. `trainer.py` names what is changed, in
the order of calls; what both engines share is in `swift_grpo_ext.trainer`.
"""

import sys
from types import ModuleType
from typing import Any

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
    register_post_import_hook(_take_the_place, HOST)
    register_post_import_hook(_join_ray, RAY)
    return ["grpo"]


def _off(why: Any) -> None:
    print(f"swift-grpo-ext: the part megatron is off: {why}", file=sys.stderr, flush=True)


def _take_the_place(host: ModuleType) -> None:
    try:
        from swift_grpo_ext.megatron.trainer import MegatronGRPOTrainer
    except ImportError as error:  # something that we change of ms-swift, mcore-bridge or Megatron is gone
        _off(error)
        return
    for place in (host, sys.modules[str(host.__package__)]):  # the package hands on what it has once found
        place.MegatronGRPOTrainer = MegatronGRPOTrainer  # type: ignore[attr-defined]


def _join_ray(pipeline: ModuleType) -> None:
    from swift_grpo_ext.megatron.ray_driver import join

    join(pipeline)
