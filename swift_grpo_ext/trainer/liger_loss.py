"""liger's GRPO loss over our log-probs: its formula, our pass (shared prompt, chunked output layer).

ms-swift hands liger the last hidden states of whole rows, of which liger makes log-probs, and of these the
loss. The first half is our pass's work; the second is the function that liger calls with log-probs.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch import Tensor, nn

from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.features import Enabled
from swift_grpo_ext.trainer.host import Host

if TYPE_CHECKING:
    from swift.rl_core.data import GRPOBatch

# Losses that liger divides by what else a micro-batch holds: its tokens, or the longest completion.
OF_MICRO_BATCH = ("bnpo", "cispo", "dapo", "luspo", "vespo")


@contextmanager
def over_our_pass(
    host: Host, enabled: Enabled, model: nn.Module, inputs: dict[str, GRPOBatch] | list[dict[str, GRPOBatch]]
) -> Iterator[None]:
    """While this is open, ms-swift's liger loss, if it is on, is of log-probs that our pass computes.

    Without log-probs in chunks liger's own way takes less memory.
    """
    if not (host.use_liger_loss and enabled.chunked_logps and takes_logps(host.liger_grpo_loss)):
        yield
        return
    batch = inputs[0] if isinstance(inputs, list) else inputs
    inputs_of, grpo_batch = batch["model_inputs"], batch["grpo_batch"]
    with (
        # It goes through the wrappers with all rows to come to the hidden states: our pass goes by itself.
        swapped(host, "_forward_redirection", lambda wrapped, unwrapped, method, **rows: method()),
        swapped(
            host,
            "_get_last_hidden_state",
            lambda *rows: host._get_per_token_logps_and_entropies(model, inputs_of, grpo_batch)[0],
        ),
        swapped(host, "liger_grpo_loss", _of_logps(host.liger_grpo_loss)),
    ):
        yield


def takes_logps(loss: object) -> bool:
    """Whether this release of liger has a function from log-probs to the loss, as it has from 0.8 on."""
    formula = _formula(loss)
    return formula is not None and "per_token_logps" in inspect.signature(formula).parameters


def _formula(loss: object) -> Callable[..., tuple[Tensor, list[Tensor]]] | None:
    module = sys.modules.get(type(loss).__module__)
    return getattr(getattr(module, "LigerFusedLinearGRPOFunction", None), "ppo_loss_fn", None)


def _of_logps(loss: object) -> Callable[..., tuple[Tensor, list[Tensor]]]:
    """Stands in for liger's module: takes log-probs ``(batch, keep)`` for hidden states."""
    formula = _formula(loss)
    assert formula is not None
    options = {
        name: getattr(loss, name) for name in inspect.signature(formula).parameters if hasattr(loss, name)
    }

    def of_logps(
        _input: Tensor, attention_mask: Tensor, advantages: Tensor, **given: object
    ) -> tuple[Tensor, list[Tensor]]:
        wanted = ("ref_per_token_logps", "old_per_token_logps", "vllm_is_ratio")
        theirs = {name: given.get(name) for name in wanted} | options
        return formula(_input, attention_mask, advantages, full_attention_mask=attention_mask, **theirs)

    return of_logps
