"""Rows without padding, packed rows and split sequences against padded rows, in runs of the host.

The host demands flash attention for rows without padding, which no CPU has. Here SDPA, row by row, takes
the place of the kernel; all else is what a GPU runs.
"""

from itertools import pairwise
from pathlib import Path

import pytest
import torch

from swift_grpo_ext import testing
from swift_grpo_ext.group import interface
from swift_grpo_ext.models.families import FAMILIES
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.testing.arguments import CPU_ARGUMENTS, command_line

HERE = Path(__file__).parent
PLUGINS = [HERE / "length_reward.py", plugin_file()]


@pytest.fixture(params=FAMILIES)
def model(request):
    return request.getfixturevalue({"qwen2_5_vl": "tiny_qwen", "ovis2": "tiny_ovis"}[request.param])


@pytest.fixture
def no_kernel(monkeypatch):
    """Lift the host's demand, and let SDPA keep rows apart by their lengths as the kernel does."""
    from swift.arguments.sft_args import SftArguments
    from transformers import AttentionInterface

    interface.install("sdpa")  # it wraps once per process what it finds
    plain = AttentionInterface()["sdpa"]

    def row_by_row(module, query, key, value, attention_mask, cu_seq_lens_q=None, **kwargs):
        if cu_seq_lens_q is None:
            return plain(module, query, key, value, attention_mask, **kwargs)
        rows = [slice(*ends) for ends in pairwise(cu_seq_lens_q.tolist())]
        made = [
            plain(module, query[:, :, row], key[:, :, row], value[:, :, row], None, **kwargs)[0]
            for row in rows
        ]
        return torch.cat(made, dim=1), None

    def check(self):
        self.padding_free = self.padding_free or self.packing

    monkeypatch.setitem(AttentionInterface._global_mapping, "sdpa", row_by_row)
    monkeypatch.setattr(SftArguments, "_check_padding_free", check)


def steps_of(output, figures):
    rows = [row for row in testing.read_logging(output) if "loss" in row]
    return [[row[figure] for figure in figures] for row in rows]


def grpo(model, dataset, output, **overrides):
    arguments = testing.grpo_arguments(
        model,
        dataset,
        output,
        external_plugins=PLUGINS,
        reward_funcs="even_characters",
        max_steps=3,
        **overrides,
    )
    testing.run_in_process("rlhf", arguments)
    return steps_of(output, ("loss", "grad_norm", "kl", "reward"))


def sft_arguments(model, dataset, output, **overrides):
    arguments = {
        "model": model,
        **testing.host_types(model),
        "dataset": dataset,
        "output_dir": output,
        "external_plugins": plugin_file(),
        **CPU_ARGUMENTS,
        "tuner_type": "full",
        "max_steps": 2,
        "logging_steps": 1,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "gradient_accumulation_steps": 1,
        "save_strategy": "no",
    }
    return command_line({**arguments, **overrides})


def test_grpo_without_padding_is_grpo_with_padding(model, digits, tmp_path, no_kernel):
    padded = grpo(model, digits.train, tmp_path / "padded")
    free = grpo(model, digits.train, tmp_path / "free", padding_free=True)
    assert len(free) == 3
    assert all(grad_norm > 0 for _, grad_norm, *_ in padded)
    for found, expected in zip(free, padded, strict=True):
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_sft_of_packed_rows_is_sft_of_padded_rows(model, digits, tmp_path, no_kernel):
    rows = len(testing.read_jsonl(digits.train))
    padded = sft_arguments(model, digits.train, tmp_path / "padded", per_device_train_batch_size=rows)
    packed = sft_arguments(
        model,
        digits.train,
        tmp_path / "packed",
        per_device_train_batch_size=1,
        packing=True,
        packing_length=16384,  # one pack of all rows
    )
    logged = []
    for name, arguments in (("padded", padded), ("packed", packed)):
        testing.run_in_process("sft", arguments)
        logged.append(steps_of(tmp_path / name, ("loss", "grad_norm")))
    assert len(logged[1]) == 2
    for found, expected in zip(logged[1], logged[0], strict=True):
        assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("feature", ["padding_free", "packing"])
def test_before_the_host_demands_flash_attention(feature, tiny_ovis, digits, tmp_path):
    arguments = sft_arguments(tiny_ovis, digits.train, tmp_path / "out", **{feature: True})
    with pytest.raises(ValueError, match=f'"{feature}" feature requires a flash attention'):
        testing.run_in_process("sft", arguments)


@pytest.mark.slow
@pytest.mark.two_ranks
@pytest.mark.parametrize("family", FAMILIES)
def test_sft_of_sequences_split_over_two_ranks_is_sft_on_one(family, digits, tmp_path):
    model = testing.tiny_checkpoint(family, tmp_path / "model", num_key_value_heads=2)
    shared = {"per_device_train_batch_size": 2, "dataset_shuffle": False, "train_dataloader_shuffle": False}
    one = sft_arguments(model, digits.train, tmp_path / "one", **shared)
    two = sft_arguments(model, digits.train, tmp_path / "two", **shared, sequence_parallel_size=2)
    testing.run_in_process("sft", one)
    testing.run_swift("sft", two, ranks=2, timeout=280)
    found, expected = (steps_of(tmp_path / name, ("loss", "grad_norm")) for name in ("two", "one"))
    assert len(found) == 2
    for ours, plain in zip(found, expected, strict=True):
        assert ours == pytest.approx(plain, rel=1e-3)
