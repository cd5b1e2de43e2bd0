"""A3: ZeRO-3's parameter trace breaks when its hooks are removed for a rollout and added again."""

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

from swift_grpo_ext.compat.patch import in_source, patch

TARGET = "deepspeed.runtime.zero.parameter_offload:DeepSpeedZeRoOffload._register_deepspeed_module"
# Name-mangled: steps at which each module was fetched, keyed by the ids that re-registering renumbers.
_FETCH_STEPS = "_PartitionedParameterCoordinator__step_id_module_fetched_for"


@patch(
    "A3",
    TARGET,
    fingerprint="self, module, count=",
    probe=lambda: not in_source(TARGET, "_invalidate_trace"),
    remove_when="DeepSpeed below 0.19.2 is no longer supported",
)
def fix(register: Callable[..., object], offload: Any, module: Any, *args: Any, **kwargs: Any) -> object:
    """Discard the trace when the root module is registered again, with new ids; it is recorded anew."""
    coordinator = offload.get_param_coordinator()
    if module is offload.module and not coordinator.is_invalid_trace():
        coordinator._invalidate_trace()
        setattr(coordinator, _FETCH_STEPS, defaultdict(deque))
    return register(offload, module, *args, **kwargs)
