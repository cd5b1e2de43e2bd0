"""Reading DeepSpeed's source against asking it."""

from deepspeeds_own import refusal

from swift_grpo_ext.deepspeed import presets
from swift_grpo_ext.deepspeed.schema import objection


def test_deepspeeds_source_says_what_deepspeed_says():
    """Against the real configuration class, on what it takes and on what it does not."""
    taken = [presets.load(name) for name in presets.available()]
    blocks = [
        {"stage": 7},
        {"stage": 2, "overlap_com": True},
        {"stage": 3, "offload_param": {"device": "gpu"}},
        {"stage": 3, "offload_optimizer": "cpu"},
        {"stage": 3, "stage3_max_live_parameters": "many"},
        {"stage": 2, "overlap_comm": "perhaps"},
    ]
    for config in [*taken, *({"zero_optimization": block} for block in blocks)]:
        assert bool(objection(config)) == bool(refusal(config)), config
