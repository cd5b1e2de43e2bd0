"""A5: reentrant checkpointing under DDP, in fp32 on one rank: neither bf16 nor several GPUs are to blame."""

from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
import torch.utils.checkpoint
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from swift_grpo_ext import testing
from swift_grpo_ext.compat.reentrant import fix as PATCH
from swift_grpo_ext.plugin_files import plugin_file
from tests.forked import run_ranks

PLAIN = getattr(torch.utils.checkpoint, "_old_checkpoint", torch.utils.checkpoint.checkpoint)


@pytest.fixture
def one_rank(monkeypatch):
    """A process group of one, and torch's own checkpoint."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setattr(torch.utils.checkpoint, "checkpoint", PLAIN)
    monkeypatch.setattr("transformers.modeling_utils.checkpoint", PLAIN, raising=False)
    monkeypatch.delattr(torch.utils.checkpoint, "_old_checkpoint", raising=False)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
    torch.utils.checkpoint.__dict__.pop("_old_checkpoint", None)


class TwoPasses(nn.Module):
    """A block that is used twice in a forward."""

    def __init__(self):
        super().__init__()
        self.embed, self.block = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x):
        x = self.embed(x)
        for _ in range(2):
            x = torch.utils.checkpoint.checkpoint(self.block, x)
        return x


def train_step(**flags):
    """What the host prepares for a run of `use_reentrant: true`, then one backward pass under DDP."""
    from swift.trainers.mixin import SwiftMixin

    args = SimpleNamespace(gradient_checkpointing_kwargs={"use_reentrant": True})
    defaults = {"is_deepspeed_enabled": False, "is_fsdp_enabled": False}
    SwiftMixin._fix_gradient_checkpointing(SimpleNamespace(args=args, **(defaults | flags)))
    model = DistributedDataParallel(TwoPasses())
    model(torch.ones(1, 2)).sum().backward()
    return args.gradient_checkpointing_kwargs["use_reentrant"]


def undo():
    torch.utils.checkpoint.checkpoint = PLAIN
    del torch.utils.checkpoint._old_checkpoint


def test_the_defect_the_cure_and_the_way_back(prove, one_rank):
    proof = prove(PATCH)
    with pytest.raises(RuntimeError, match="Expected to mark a variable ready only once"):
        train_step()
    undo()
    proof.on()
    assert train_step() is False
    undo()
    proof.off()
    proof.drift()


def test_deepspeed_is_left_alone(prove, one_rank):
    prove(PATCH).on()
    with pytest.raises(RuntimeError, match="ready only once"):  # DDP all the same, so it shows
        train_step(is_deepspeed_enabled=True)


@pytest.mark.slow
@pytest.mark.two_ranks
@pytest.mark.timeout(600)
@pytest.mark.parametrize("disabled", ["", PATCH.id])
def test_two_ranks_through_the_command(tiny_qwen, digits, tmp_path, disabled):
    arguments = testing.grpo_arguments(
        tiny_qwen,
        digits.train,
        tmp_path,
        external_plugins=plugin_file(),
        reward_funcs="format",
        tuner_type="lora",  # the model is no longer a PreTrainedModel, so DDP looks for unused parameters
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": True},
        seed=1,
    )
    # Our trainer's packs use checkpoints of the other kind, whatever is asked for.
    off = f"trainer,compat.{disabled}" if disabled else "trainer"
    variables = {"SWIFT_GRPO_EXT_DISABLE": off}
    result = run_ranks("rlhf", arguments, variables, timeout=500, check=False)
    if disabled:
        assert result.returncode != 0
        assert "Expected to mark a variable ready only once" in result.tail
    else:
        assert result.returncode == 0, result.tail[-3000:]
        assert "another dtype does not help" in result.tail
        assert len([row for row in testing.read_logging(tmp_path) if "loss" in row]) == 2
