"""What a run leaves for tests: per micro-batch the log-probs, per step what is logged and counted, and every gradient.

Each rank writes ``rank<N>.pt``: ``micro_batches``, ``logs``, ``counts``, ``gradients`` (lists with an entry per micro-batch, or per optimizer
step), ``seconds`` (of each step of Megatron) and ``mode``.
"""

from collections import Counter
from pathlib import Path

import torch

FIGURES = (int, float)
NAMELESS = ("model", "language_model", "base_model", "module", "default")


def plain_name(name):
    """A parameter's name without the parts that differ between checkpoints and models of both engines."""
    return ".".join(part for part in name.split(".") if part not in NAMELESS)


class Recording:
    """Filled while a run goes on, written at its end."""

    def __init__(self, with_gradients=True):
        self.with_gradients = with_gradients
        self.micro_batches, self.logs, self.counts, self.gradients = [], [], [], []
        self.seconds = []
        self.mode = {}
        self.now = Counter()

    def add_micro_batch(self, policy, batch, loss):
        """Log-probs of one forward of the policy, ``(row, position)``, and what its loss read."""
        self.micro_batches.append(
            {
                "step": len(self.logs),
                "policy": policy.detach().clone(),
                "old": _copy(batch.old_per_token_logps),
                "ref": _copy(batch.ref_per_token_logps),
                "rollout": _copy(batch.rollout_per_token_logps),
                "mask": batch.completion_mask.bool().clone(),
                "advantages": batch.advantages.detach().clone(),
                "loss": loss.detach().item(),
            }
        )

    def add_logs(self, logs):
        """What the engine logs; a line without ``grad_norm`` (of the whole run) is no step."""
        if "grad_norm" in logs:
            self.logs.append(
                {name: float(value) for name, value in logs.items() if isinstance(value, FIGURES)}
            )
            self.counts.append(dict(self.now))
            self.now.clear()

    def count(self, model):
        """Count what goes through the parts of a model from now on, over all passes."""
        for name, module in model.named_modules():
            last = name.rsplit(".", 1)[-1]
            if count := COUNTERS.get(last):
                module.register_forward_pre_hook(
                    lambda _, args, kwargs, count=count: count(self.now, args, kwargs), with_kwargs=True
                )

    def write(self, folder, rank):
        """Write all of it."""
        names = ("micro_batches", "logs", "counts", "gradients", "seconds", "mode")
        torch.save({name: getattr(self, name) for name in names}, Path(folder) / f"rank{rank}.pt")


def _copy(tensor):
    return None if tensor is None else tensor.detach().clone()


def _tower(now, args, kwargs):
    now["tower_calls"] += 1
    now["patches"] += next(iter([*args, *kwargs.values()])).shape[0]  # of InternVL's images


def _decoder(now, args, kwargs):
    hidden = args[0] if args else kwargs["hidden_states"]
    now["decoder_calls"] += 1
    if hidden is not None:  # later stages of a pipeline are handed it another way
        now["tokens"] += hidden.shape[0] * hidden.shape[1]


def _head(now, args, kwargs):
    hidden = args[0] if args else kwargs["input_"]
    now["head_rows"] += hidden.shape[:-1].numel()


def _attention(now, args, kwargs):
    packed = kwargs.get("packed_seq_params")
    now["attention_calls"] += 1
    now["packed_attention_calls"] += packed is not None


def _embedding(now, args, kwargs):
    now["tokens"] += args[0].numel()


# By the last part of a module's name, in mcore-bridge's models and in those of transformers.
COUNTERS = {
    "patch_embed": _tower,
    "patch_embeddings": _tower,
    "decoder": _decoder,
    "output_layer": _head,
    "lm_head": _head,
    "core_attention": _attention,
    "embed_tokens": _embedding,
}
