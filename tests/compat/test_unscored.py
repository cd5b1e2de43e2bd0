"""What both engines use of ms-swift's pure functions, where Megatron itself cannot be had: tested as functions.

`swift.megatron` needs megatron-core and GPUs; its trainer calls `score_completions`, `compute_advantages`,
`encode_sample` and the vLLM engine, which are patched or registered here as in `swift rlhf`.
"""

import pytest
import torch
from PIL import Image
from swift.rl_core import advantage
from swift.rl_core.data import GRPOSample
from swift.rl_core.grpo_algorithm import score_completions
from swift.rlhf_trainers.utils import encode_sample, resolve_reward_funcs

import swift_grpo_ext
from swift_grpo_ext.compat import registry, unscored
from swift_grpo_ext.group.advantages import group_advantages
from tests.compat.reverting import revert
from tests.models import contract

NAN = torch.nan
before = advantage.compute_advantages


@pytest.fixture(scope="module", autouse=True)
def registered():
    swift_grpo_ext.register()


def advantages(scores, size=4, weights=None, **options):
    rewards = torch.tensor(scores)
    weights = torch.ones(rewards.shape[1]) if weights is None else torch.tensor(weights)
    return unscored.fix.fix(before)(rewards, weights, size, **options)


def test_it_is_applied_where_ms_swift_has_the_function():
    (outcome,) = [one for one in registry.outcomes() if one.patch.id == "unscored"]
    assert outcome.state is registry.State.APPLIED
    found, _ = advantage.compute_advantages(torch.tensor([[1.0], [1.0], [1.0], [NAN]]), torch.ones(1), 4)
    assert found.tolist() == [0, 0, 0, 0]


def test_before_the_one_that_was_not_scored_is_the_worst():
    original = registry.patches()["unscored"]
    revert(original.id)
    try:
        scores = torch.tensor([[1.0], [1.0], [1.0], [NAN]])
        found, _ = advantage.compute_advantages(scores, torch.ones(1), 4)
        assert found[3] < -1.4
    finally:
        registry.settle(original)


@pytest.mark.parametrize("estimator", ["grpo", "rloo", "reinforce_plus_plus"])
@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_unscored_completions_take_no_part(estimator, scale):
    scores = [[1.0], [0.0], [NAN], [0.5], [NAN], [NAN], [0.3], [NAN]]
    chosen = {"advantage_estimator": estimator, "scale_rewards": scale}
    found, rewards = advantages(scores, **chosen)
    expected = group_advantages(
        torch.tensor(scores), torch.ones(1), torch.arange(8) // 4, estimator=estimator, scale=scale
    )
    assert torch.equal(found, expected.advantages)
    assert found[2] == 0
    assert found[4:].tolist() == [0, 0, 0, 0], "one scored completion has nothing to be compared with"
    assert rewards.tolist() == pytest.approx([1, 0, 0.5, 0.5, 0.3, 0.3, 0.3, 0.3])


def test_a_kl_penalty_is_taken_off_the_scored_ones():
    kl = torch.tensor([0.0, 1.0, 2.0, 0.0])
    found, _ = advantages(
        [[1.0], [1.0], [NAN], [1.0]], kl_in_reward=True, beta=0.5, kl_values=kl, scale_rewards="none"
    )
    assert found.tolist() == pytest.approx([1 / 6, -1 / 3, 0, 1 / 6])


@pytest.mark.parametrize("scale", ["group", "batch", "none", "gdpo"])
def test_scored_batches_are_ms_swifts_own(scale):
    scores = torch.rand(8, 2, generator=torch.Generator().manual_seed(0)).tolist()
    for mine, theirs in zip(
        advantages(scores, scale_rewards=scale),
        before(torch.tensor(scores), torch.ones(2), 4, scale_rewards=scale),
        strict=True,
    ):
        assert torch.equal(mine, theirs)


def test_a_function_of_weight_0_and_none_at_all_change_nothing():
    watched, _ = advantages([[1.0, NAN], [0.0, NAN], [1.0, NAN], [0.0, 1.0]], weights=[1.0, 0.0])
    assert watched[0] == -watched[1] > 0
    nothing, _ = advantages(torch.zeros(4, 0).tolist(), weights=[])
    assert nothing.tolist() == [0, 0, 0, 0]


def samples(answers, image):
    question = {"role": "user", "content": "<image>Where is the digit?"}
    return [
        GRPOSample(
            messages=[question, {"role": "assistant", "content": answer}],
            images=[image],
            extra={"solution": "[0, 0, 10, 10]"},
        )
        for answer in answers
    ]


def test_our_rewards_score_by_the_function_that_megatron_calls():
    functions, names = resolve_reward_funcs(["ext_format"])
    rows = samples(["<think>a</think><answer>1</answer>", "1"], Image.new("RGB", (56, 56)))
    scores = score_completions(rows, functions, None, False, torch.device("cpu"))
    assert scores[:, 0].tolist() == [1, 0]
    assert len(names) == 1


def test_the_template_prepares_the_image_of_a_group_once(tiny_qwen):
    template = contract.load(tiny_qwen, model_type="qwen2_5_vl", template_type="qwen2_5_vl").template
    template.set_mode("train")
    counts = template.images.store.counts
    made = counts.made
    rows = samples([str(number) for number in range(8)], Image.effect_noise((56, 84), 50).convert("RGB"))
    encoded = [encode_sample(one, template) for one in rows]
    assert len(encoded) == 8
    assert all(torch.equal(one["pixel_values"], encoded[0]["pixel_values"]) for one in encoded)
    assert counts.made - made == 3, "decoded, resized and prepared once"
