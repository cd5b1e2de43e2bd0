"""The table of features, which both engines read."""

import pytest

from swift_grpo_ext.features import FEATURES, Features, decided, features_of
from swift_grpo_ext.group.cut import BatchSizes
from swift_grpo_ext.settings import Settings
from swift_grpo_ext.trainer.gains import facts_of

SIZES = BatchSizes(4, 2, 2)


@pytest.mark.parametrize("engine", ["trainer", "megatron"])
def test_all_of_an_engine_is_on_where_nothing_speaks_against_it(engine):
    features = decided(engine, Settings(), {})
    assert [name for name in FEATURES if name in features] == list(features_of(engine))
    assert not features.stock_forward
    assert features.without_forward("why").stock_forward


def test_a_feature_of_the_other_engine_is_not_in_a_run_and_an_unknown_name_is_an_error():
    assert "chunked_logps" not in Features("megatron")
    with pytest.raises(KeyError):
        "shared_prefiks" in Features("megatron")  # noqa: B015


def test_a_switch_comes_before_a_reason_and_a_reason_before_idle():
    def why():
        return "why; --what"

    reasons = dict.fromkeys(("vision_once", "skip_old_logps"), why)
    idle = dict.fromkeys(("vision_once", "prepare_ahead"), lambda: "no images")
    features = decided("trainer", Settings(disable="skip_old_logps"), reasons, idle)
    assert features.why_off == {
        "skip_old_logps": "switched off; SWIFT_GRPO_EXT_DISABLE without trainer.skip_old_logps",
        "vision_once": "why; --what",
    }
    assert features.why_idle == {"prepare_ahead": "no images"}
    assert "prepare_ahead" not in features
    gains = facts_of(features, SIZES, 4)["gains"]
    assert gains["vision_once"] == {"state": "off", "why": "why", "fix": "--what"}
    assert gains["prepare_ahead"] == {"state": "idle", "why": "no images", "fix": ""}


def test_what_needs_a_feature_is_off_with_it():
    features = Features("trainer").without(shared_prefix="why")
    assert features.why_off == {"shared_prefix": "why", "skip_zero_advantage": "needs shared_prefix"}
    of_megatron = Features("megatron").without(completion_logits="why", vision_once="another")
    assert of_megatron.why_off["shared_prefix"] == "needs completion_logits"
    assert of_megatron.without(vision_once="later").why_off["vision_once"] == "another"


@pytest.mark.parametrize("engine", ["trainer", "megatron"])
def test_gains_have_each_feature_once_by_section(engine):
    facts = facts_of(Features(engine), SIZES, 4)
    sections = [facts[section] for section in ("gains", "checks", "watching")]
    assert sorted(name for section in sections for name in section) == sorted(features_of(engine))


@pytest.mark.parametrize(
    ("batch", "group", "state", "together"),
    [
        (1, 4, "idle", 1),
        (2, 4, "on", 2),
        (3, 2, "on", 2),
        (4, 3, "on", 3),
        (9, 2, "on", 2),
        (4, 1, "idle", 1),
    ],
)
def test_prompts_that_are_shared_are_not_idle(batch, group, state, together):
    """Also where micro-batches and groups have no divisor in common."""
    facts = facts_of(Features("trainer"), BatchSizes(batch, 6, 6), group)
    assert facts["gains"]["shared_prefix"]["state"] == state
    assert facts["of_a_prompt_in_a_micro_batch"] == together
