"""Layouts on which ranks disagree, batches without completions, kernels without the mask, and what is not supported."""

import hashlib
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from megatron.core.extensions.transformer_engine import TEDotProductAttention

from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.features import Features
from swift_grpo_ext.group.layout import PackForm
from swift_grpo_ext.group.shared_prefix import Pack
from swift_grpo_ext.megatron import features, passes
from swift_grpo_ext.megatron.attention import ONE_CALL, SDPA, pack_params, why_not_one_call
from swift_grpo_ext.megatron.group_cut import refuse_cut_groups
from swift_grpo_ext.megatron.packs import padded
from swift_grpo_ext.megatron.passes import KnownBatch, MegatronPasses
from swift_grpo_ext.megatron.predictions import IGNORED, predictions_of_rows
from swift_grpo_ext.megatron.trainer import HostGRPOTrainer, MegatronGRPOTrainer
from swift_grpo_ext.trainer import distributed
from swift_grpo_ext.trainer.first_pass import FirstPasses
from tests.group.stars import Star, star_layout, stars_of


@pytest.fixture
def told(monkeypatch):
    """What a run says once."""
    lines = []
    monkeypatch.setattr(passes, "logger", SimpleNamespace(info_once=lines.append))
    return lines


def bare(**host):
    """Passes of which nothing is set up."""
    made = MegatronPasses.__new__(MegatronPasses)
    made._host = SimpleNamespace(device="cpu", is_main_process=True, **host)
    return made


@pytest.fixture
def two_ranks(monkeypatch):
    """A group of two ranks, of which this is one; what it is given are the layouts of the other."""
    layouts = []

    def all_reduce(ends, op, group):
        text = layouts.pop()
        theirs = torch.tensor([_digest(text), -_digest(text)])
        ends.copy_(torch.maximum(ends, theirs))

    monkeypatch.setattr(distributed, "is_alone", lambda: False)
    monkeypatch.setattr(dist, "get_world_size", lambda group: 2)
    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    return layouts


def _digest(text):
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "big")


@pytest.mark.parametrize("other", ["(9, 4)", ""], ids=["another layout", "none"])
def test_ranks_that_disagree_about_a_layout_go_ms_swifts_way(other, two_ranks, told):
    two_ranks.append(other)
    made = bare(_get_rollout_group=lambda: None)
    assert made._agreed(SimpleNamespace(signature="(9, 5)")) is None
    assert told == ["swift-grpo-ext: micro-batch used the stock forward: ranks disagree about its layout"]


def test_a_rank_without_a_layout_hears_of_that_of_the_other(two_ranks, told):
    two_ranks.append("(9, 5)")
    assert bare(_get_rollout_group=lambda: None)._agreed(None) is None
    assert len(told) == 1


def test_ranks_that_agree_share(two_ranks):
    two_ranks.append("(9, 5)")
    batch = SimpleNamespace(signature="(9, 5)")
    assert bare(_get_rollout_group=lambda: None)._agreed(batch) is batch


def test_a_rank_by_itself_asks_nobody(monkeypatch):
    """Nor does one of several whose completions no other rank works on."""
    monkeypatch.setattr(distributed, "is_alone", lambda: False)
    monkeypatch.delattr(dist, "all_reduce")
    monkeypatch.delattr(dist, "all_gather_object")
    batch = SimpleNamespace(signature="(9, 5)")
    assert bare(_get_rollout_group=lambda: dist.group.WORLD)._agreed(batch) is batch


def test_the_self_check_gives_each_pass_labels_of_its_own(monkeypatch):
    """ms-swift's preparation of a pass moves labels by one place, in the mapping that it is given."""

    def stock(micro_batches):
        inputs = next(micro_batches)
        inputs["labels"] = inputs["labels"].roll(-1, -1)
        return inputs["labels"].float(), None

    labels = torch.tensor([[IGNORED, 5, 6, 7]])
    made = bare(config=SimpleNamespace(params_dtype=torch.float32))
    made.features = Features("megatron")
    made._first_passes = FirstPasses(torch.device("cpu"), on=True, waits=False)
    made._way = lambda known: nullcontext()
    known = KnownBatch(predictions_of_rows(labels))
    assert made._checked(known, {"labels": labels}, stock) is known
    assert known.predictions
    assert "completion_logits" in made.features
    assert not made._first_passes.is_due("pass")


def test_a_micro_batch_without_a_completion_has_logits_of_one_place_and_no_log_probs():
    """Every rank and stage computes something, else they would wait for each other."""
    made = predictions_of_rows(torch.full((2, 3), IGNORED))
    assert made.places.tolist() == [0]
    assert made.targets.tolist() == [[IGNORED]]
    assert made.spread(torch.zeros(1, 1)).tolist() == [[0.0] * 3] * 2


def test_a_pack_is_padded_by_a_span_that_nobody_sees():
    layout = star_layout([(3, (2, 0))], PackForm(ONE_CALL))
    places = {name: torch.tensor([3, 4]) for name in ("predictor", "ids", "score", "target")}
    pack = Pack(layout, torch.arange(5), **places, batch=2, seq=5, keep=2)
    longer = padded(pack, 4)
    assert (longer.layout.length, stars_of(longer.layout)[-1]) == (8, Star(5, 3, ()))
    assert len(longer.source) == 8
    assert padded(pack, 5) is pack


def test_a_pack_that_is_longer_than_a_row_may_be_has_positions_of_rows():
    """Rotary tables reach to the longest row, which the limit holds for; the pack may be longer."""
    layout = star_layout([(3, (2, 3, 3))], PackForm(ONE_CALL))
    params = pack_params(layout, torch.tensor([5, 6, 6]))
    assert layout.length == 11
    assert (params.max_seqlen_q, params.cu_seqlens_q.tolist()) == (6, [0, 11])


@pytest.fixture
def attention():
    """A model that is one attention layer of the stand-in."""
    from megatron.core.transformer.enums import AttnMaskType
    from megatron.core.transformer.transformer_config import TransformerConfig

    config = TransformerConfig(num_layers=1, hidden_size=16, num_attention_heads=2, attention_dropout=0.0)
    layer = TEDotProductAttention(config, 1, AttnMaskType.causal, "self")
    return torch.nn.ModuleList([layer, torch.nn.Linear(1, 1)]), config


def test_one_call_is_right_with_the_mask(attention):
    model, config = attention
    assert why_not_one_call([model], config) == ""


def test_a_kernel_without_the_mask_leaves_attention_to_sdpa(attention, monkeypatch, told):
    model, config = attention
    kernel = TEDotProductAttention.__mro__[1].forward

    def without_the_mask(self, *args, **kwargs):
        if "bottom_right" in kwargs.get("attn_mask_type", ""):
            raise ValueError("No dot product attention backend is available for the provided inputs")
        return kernel(self, *args, **kwargs)

    monkeypatch.setattr(TEDotProductAttention.__mro__[1], "forward", without_the_mask)
    made = bare(unwrapped_models=[model], config=config)
    assert made._attention() == SDPA
    assert len(told) == 1
    assert "attention of packs is SDPA (ValueError: No dot product attention backend" in told[0]


def test_a_kernel_that_takes_another_mask_for_it_is_found(attention, monkeypatch):
    model, config = attention
    kernel = TEDotProductAttention.__mro__[1].forward

    def from_the_top(self, *args, **kwargs):
        return kernel(self, *args, **{**kwargs, "attn_mask_type": "padding_causal"})

    monkeypatch.setattr(TEDotProductAttention.__mro__[1], "forward", from_the_top)
    assert "of the largest value off" in why_not_one_call([model], config)


ARGUMENTS = {
    "context_parallel_size": 1,
    "mtp_num_layers": None,
    "virtual_pipeline_model_parallel_size": None,
    "router_replay_mode": "disabled",
    "is_multimodal": False,
    "moe_aux_loss_coeff": None,
    "moe_z_loss_coeff": None,
    "moe_expert_capacity_factor": None,
    "apply_rope_fusion": False,
    "attention_backend": "flash",
    "tp_comm_overlap": False,
    "pipeline_model_parallel_size": 1,
    "tuner_type": "full",
}
CONFIG = {
    "num_moe_experts": 4,
    "moe_router_load_balancing_type": "aux_loss",
    "multi_latent_attention": False,
    "variable_seq_lengths": True,
    "moe_router_enable_expert_bias": False,
    "moe_router_bias_update_rate": 1e-3,
}


def host_of(arguments=(), config=()):
    return SimpleNamespace(
        args=SimpleNamespace(**{**ARGUMENTS, **dict(arguments)}),
        config=SimpleNamespace(**{**CONFIG, **dict(config)}),
        output_layers=SimpleNamespace(odd=""),
        template=SimpleNamespace(config=SimpleNamespace(model_type="qwen3")),
        unwrapped_models=[],
    )


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, ""),
        ({"context_parallel_size": 2}, "--context_parallel_size 1"),
        ({"mtp_num_layers": 1}, "without --mtp_num_layers"),
        ({"virtual_pipeline_model_parallel_size": 2}, "virtual pipeline stages"),
        ({"router_replay_mode": "R2"}, "router replay (R2)"),
        ({"fp8_format": "hybrid"}, "without --fp8_format"),
    ],
)
def test_what_turns_all_of_it_off(arguments, reason):
    assert reason in features._pass_reason(host_of(arguments))
    assert bool(reason) == bool(features._pass_reason(host_of(arguments)))


@pytest.mark.parametrize(
    ("arguments", "config", "reason"),
    [
        ({}, {}, ""),
        ({"moe_aux_loss_coeff": 1e-3}, {}, "--moe_aux_loss_coeff 0"),
        ({"moe_aux_loss_coeff": [0.0, 1e-3]}, {}, "--moe_aux_loss_coeff 0"),
        ({"moe_z_loss_coeff": 1e-3}, {}, "without --moe_z_loss_coeff"),
        ({"moe_expert_capacity_factor": 1.0}, {}, "without --moe_expert_capacity_factor"),
        ({"moe_z_loss_coeff": 1e-3}, {"num_moe_experts": None}, ""),
        ({}, {"moe_router_load_balancing_type": "sinkhorn"}, "sinkhorn"),
        ({}, {"moe_router_load_balancing_type": ["seq_aux_loss", "sinkhorn"]}, "sinkhorn"),
        ({"apply_rope_fusion": True}, {}, "--apply_rope_fusion false"),
        ({"attention_backend": "local"}, {}, "--attention_backend flash"),
        ({"tp_comm_overlap": True}, {}, "--tp_comm_overlap false"),
        ({}, {"moe_router_enable_expert_bias": True}, '"aux_loss_alpha": 0'),
        ({"tuner_type": "lora"}, {"moe_router_enable_expert_bias": True}, ""),
        ({}, {"moe_router_enable_expert_bias": True, "moe_router_bias_update_rate": 0.0}, ""),
        ({"pipeline_model_parallel_size": 2}, {"variable_seq_lengths": False}, "--variable_seq_lengths true"),
        ({}, {"multi_latent_attention": True}, "latent attention"),
        ({}, {"window_size": (128, 0)}, "sliding window"),
        ({}, {"hidden_dropout": 0.1}, "dropout"),
    ],
)
def test_what_turns_sharing_off(arguments, config, reason):
    made = features._prefix_reason(host_of(arguments, config))
    assert reason in made
    assert bool(reason) == bool(made)


def test_a_loss_over_groups_refuses_parts_of_them():
    host = SimpleNamespace(loss_type="real", micro_batch_size=2, num_generations=4)
    with pytest.raises(RefusedError, match="micro-batches of 2 hold parts of groups of 4") as refused:
        refuse_cut_groups(host)
    assert "\n" not in str(refused.value)
    host.micro_batch_size = 8
    refuse_cut_groups(host)


def test_ms_swift_finds_the_means_of_an_evaluation_where_it_puts_them(monkeypatch):
    """It looks for the best checkpoint in the mapping that was logged."""
    logged = []
    monkeypatch.setattr(HostGRPOTrainer, "on_log", lambda _, logs, prefix: logged.append(logs))
    made = MegatronGRPOTrainer.__new__(MegatronGRPOTrainer)
    made.watching = SimpleNamespace(phase=lambda name: nullcontext(), figures=lambda: {"watch/moved": 1.0})
    made.guard = SimpleNamespace(run=lambda name, action: action())
    made.held_out = SimpleNamespace(
        settle=lambda: None, figures={"reward_low": 0.5}, note_training=lambda logs: None
    )
    evaluated, trained = {}, {}
    made.on_log(evaluated, "eval_")
    made.on_log(trained)
    assert logged[0] is evaluated
    assert logged[1] is trained
    assert (evaluated, trained) == ({"reward_low": 0.5}, {"watch/moved": 1.0})
