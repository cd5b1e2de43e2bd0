"""Stands in for liger-kernel's GRPO loss; the real package makes every import of trl seconds slower.

`make test-liger` runs the same tests with the real package. Its kernels inside layers need a GPU in any case.
"""

import torch
from torch import nn


class LigerFusedLinearGRPOFunction:
    """Holds the formula, as the package does."""

    @staticmethod
    def ppo_loss_fn(
        per_token_logps,
        attention_mask,
        advantages,
        full_attention_mask,
        ref_per_token_logps=None,
        old_per_token_logps=None,
        epsilon_low=0.2,
        epsilon_high=0.2,
        beta=0.04,
        loss_type="dapo",
        vllm_is_ratio=None,
    ):
        old = per_token_logps.detach() if old_per_token_logps is None else old_per_token_logps
        ratio = (per_token_logps - old).exp()
        clipped = ratio.clamp(1 - epsilon_low, 1 + epsilon_high)
        loss = -torch.min(ratio * advantages[:, None], clipped * advantages[:, None])
        tokens = full_attention_mask.sum().clamp(min=1)
        metrics = []
        if beta:
            apart = ref_per_token_logps - per_token_logps
            kl = apart.exp() - apart - 1
            loss = loss + beta * kl
            metrics.append((kl * attention_mask).sum() / tokens)
        metrics.append(((ratio != clipped) * attention_mask).sum() / tokens)
        loss = loss * attention_mask
        if loss_type == "bnpo":
            return loss.sum() / tokens, metrics
        assert loss_type == "grpo"
        return (loss.sum(1) / attention_mask.sum(1).clamp(min=1)).sum() / len(full_attention_mask), metrics


class LigerFusedLinearGRPOLoss(nn.Module):
    """From hidden states and the output layer's weights to the loss."""

    def __init__(self, temperature=1.0, **options):
        super().__init__()
        self.temperature = temperature
        for name in ("beta", "epsilon_low", "epsilon_high", "loss_type"):
            setattr(self, name, options[name])

    def forward(self, _input, lin_weight, selected_token_ids, attention_mask, advantages, bias=None, **given):
        logits = nn.functional.linear(_input, lin_weight, bias).float() / self.temperature
        logps = logits.log_softmax(-1).gather(-1, selected_token_ids[..., None])[..., 0]
        names = ("beta", "epsilon_low", "epsilon_high", "loss_type")
        return LigerFusedLinearGRPOFunction.ppo_loss_fn(
            logps,
            attention_mask,
            advantages,
            full_attention_mask=attention_mask,
            **{name: getattr(self, name) for name in names},
            **given,
        )
