"""ms-swift's loss as we compute it: its defects fixed, one function each; liger's over our log-probs."""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from swift_grpo_ext.features import Features
from swift_grpo_ext.group.recompute import without_reentrance
from swift_grpo_ext.losses import loss_named
from swift_grpo_ext.ms_swift.shared import GRPOBatch
from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.host import Host
from swift_grpo_ext.trainer.samples import LossValue, PerToken

LigerLoss: TypeAlias = tuple[LossValue, list[LossValue]]
"""What liger's formulas return: the loss, and figures."""


@contextmanager
def loss_fixes(host: Host, grpo_batch: GRPOBatch) -> Iterator[None]:
    """While this is open, ms-swift computes the loss of a micro-batch as it is meant."""
    with (
        no_phantom_teacher(host, grpo_batch),
        whole_window(host, grpo_batch),
        real_groups(host, grpo_batch),
        kl_once(host),
    ):
        yield


def kl_once(host: Host) -> AbstractContextManager[None]:
    """While this is open, a run whose KL is in the rewards has none in the loss.

    ms-swift's ``real`` adds the loss's KL even where it is None ("unsupported operand type(s) for *:
    'NoneType' and 'Tensor'"). Remove when ms-swift checks for None (upstream/real-kl).
    """
    return swapped(host, "beta", 0.0) if host.kl_in_reward else nullcontext()


def no_phantom_teacher(host: Host, grpo_batch: GRPOBatch) -> AbstractContextManager[None]:
    """While this is open, the run has a teacher only if the micro-batch has its log-probs.

    ms-swift 4.6.0 sets ``_has_teacher`` in every run, and refuses what cannot take a teacher: ``fipo``,
    ``real`` and the off-policy sequence mask. Remove when ms-swift looks at the batch.
    """
    present = host._has_teacher and grpo_batch.teacher_per_token_logps is not None
    return swapped(host, "_has_teacher", present)


def whole_window(host: Host, grpo_batch: GRPOBatch) -> AbstractContextManager[None]:
    """While this is open, a loss over a step's tokens divides by the tokens of an average micro-batch.

    These losses divide by the tokens of all micro-batches of a step; transformers divides each micro-batch's
    loss by their number once more. ms-swift 4.6 makes up for it, 4.5 does not: its gradient shrinks by
    ``gradient_accumulation_steps``. Remove with ms-swift 4.5.
    """
    made_up_for = hasattr(host, "_undo_gradient_accumulation_scaling")
    if not host.model.training or not loss_named(host.loss_type).over_window or made_up_for:
        return nullcontext()
    tokens = grpo_batch.num_items_in_batch / host.current_gradient_accumulation_steps
    return swapped(grpo_batch, "num_items_in_batch", tokens)


def real_groups(host: Host, grpo_batch: GRPOBatch) -> AbstractContextManager[None]:
    """While this is open, ``--loss_type real`` splits the right completions into labels (arXiv 2602.05630).

    ms-swift cuts evaluations, too, into groups of ``num_generations``, and takes a completion that
    ``overlong_filter`` left out for a negative. Remove when ms-swift does both itself.
    """
    if not loss_named(host.loss_type).whole_groups:
        return nullcontext()
    if host.overlong_filter:
        left_out = grpo_batch.truncated_mask.unsqueeze(1)
        grpo_batch.advantages = grpo_batch.advantages.masked_fill(left_out, torch.nan)  # neither label
    size = host.num_generations if host.model.training else host.num_generations_eval
    return swapped(host, "num_generations", size)


def chunks_add_up(host: Host, whole: GRPOBatch) -> AbstractContextManager[None]:
    """While this is open, chunks of a micro-batch give the loss of the whole.

    ms-swift averages the losses of chunks by their rows, which gives a loss over a step's tokens a third of
    its value where there are three. Remove when ms-swift adds them up (upstream/chunked-loss).
    """
    if not loss_named(host.loss_type).over_window:
        return nullcontext()
    chunked = host.get_chunked_inputs

    def with_its_share(*args: object, **kwargs: object) -> tuple[object, GRPOBatch]:
        inputs, chunk = chunked(*args, **kwargs)
        share = len(chunk.completion_mask) / len(whole.completion_mask)
        chunk.num_items_in_batch = whole.num_items_in_batch * share
        return inputs, chunk

    return swapped(host, "get_chunked_inputs", with_its_share)


def reduced_once(host: Host, model: nn.Module) -> AbstractContextManager[None]:
    """While this is open, each parameter's gradient comes in one piece, however many passes a loss has.

    Chunks, and CHORD's supervised batch, are passes of their own under one backward pass. A reentrant
    checkpoint, which ms-swift takes under DeepSpeed and FSDP, has a backward pass of its own, so a gradient
    comes once for each: ZeRO-2 stops at the second ("Gradient computed twice"), ZeRO-3 reduces them wrongly
    (F35 in docs/findings.md). Remove when ms-swift checkpoints them without reentrance.
    """
    several = host.dynamic_num_samples or host.chord_sft_iterator is not None
    sharded = host.is_deepspeed_enabled or host.is_fsdp_enabled
    return without_reentrance(model.modules()) if several and sharded else nullcontext()


@contextmanager
def over_our_pass(
    host: Host,
    features: Features,
    model: nn.Module,
    inputs: dict[str, GRPOBatch] | list[dict[str, GRPOBatch]],
) -> Iterator[None]:
    """While this is open, ms-swift's liger loss, if it is on, takes the log-probs of our pass.

    ms-swift hands liger hidden states of whole rows. Here its second half, from log-probs to the loss, gets
    ours; without chunks liger's own way takes less memory.
    """
    if not (host.use_liger_loss and "chunked_logps" in features and takes_logps(host.liger_grpo_loss)):
        yield
        return
    batch = inputs[0] if isinstance(inputs, list) else inputs
    inputs_of = batch["model_inputs"]
    grpo_batch = batch["grpo_batch"]
    with (
        # ms-swift runs all rows through the wrappers to get hidden states; our pass runs by itself.
        swapped(host, "_forward_redirection", lambda wrapped, unwrapped, method, **rows: method()),
        swapped(
            host,
            "_get_last_hidden_state",
            lambda *rows: host._get_per_token_logps_and_entropies(model, inputs_of, grpo_batch)[0],
        ),
        swapped(host, "liger_grpo_loss", _of_logps(host.liger_grpo_loss)),
    ):
        yield


def takes_logps(loss: nn.Module) -> bool:
    """True if this release of liger has a function from log-probs to the loss, as it has from 0.8 on."""
    formula = _formula(loss)
    return formula is not None and "per_token_logps" in inspect.signature(formula).parameters


def _formula(loss: nn.Module) -> Callable[..., LigerLoss] | None:
    module = sys.modules.get(type(loss).__module__)
    return getattr(getattr(module, "LigerFusedLinearGRPOFunction", None), "ppo_loss_fn", None)


def _of_logps(loss: nn.Module) -> Callable[..., LigerLoss]:
    """Stand-in for liger's module that takes log-probs in place of hidden states."""
    formula = _formula(loss)
    assert formula is not None
    options = {
        name: getattr(loss, name) for name in inspect.signature(formula).parameters if hasattr(loss, name)
    }

    def of_logps(
        _input: PerToken,
        attention_mask: Int[Tensor, "batch keep"],
        advantages: Float[Tensor, " batch"],
        **given: object,
    ) -> LigerLoss:
        names = ("ref_per_token_logps", "old_per_token_logps", "vllm_is_ratio")
        theirs = {name: given.get(name) for name in names} | options
        return formula(_input, attention_mask, advantages, full_attention_mask=attention_mask, **theirs)

    return of_logps
