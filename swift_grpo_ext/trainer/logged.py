"""Means that go into the log: over tokens, and never poisoned by one NaN."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import torch
from accelerate.utils import gather
from swift.utils import get_logger
from torch import Tensor

from swift_grpo_ext.group.statistics import WeightedMean, per_token_kl, with_mean_for_nonfinite

logger = get_logger()


class TokenWeightedMetrics:
    """Mixin of the host's GRPO trainer for what it logs.

    The host logs the mean over micro-batches (and ranks) of the mean over their tokens. That depends on how
    the completions were cut into micro-batches; ``kl`` here is the mean over all tokens of the window. The
    two are equal for one micro-batch on one rank. And one NaN makes the host's mean of a window NaN.
    """

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        self._policy_logps: Tensor | None = None
        self._token_kl: defaultdict[str, WeightedMean] = defaultdict(WeightedMean)
        self._named: set[str] = set()
        super().__init__(*args, **kwargs)

    def _get_per_token_logps_and_entropies(self: Any, *args: Any, **kwargs: Any) -> tuple[Tensor, Any]:
        logps, entropies = super()._get_per_token_logps_and_entropies(*args, **kwargs)  # type: ignore[misc]
        self._policy_logps = logps.detach()
        return logps, entropies

    def _compute_loss_and_metrics(self: Any, model: Any, model_inputs: Any, grpo_batch: Any) -> Any:
        self._policy_logps = None  # forget the old and reference passes: the loss's own is what counts
        loss, metrics = super()._compute_loss_and_metrics(model, model_inputs, grpo_batch)  # type: ignore[misc]
        if "kl" in metrics and self._policy_logps is not None:
            mask = metrics["completion_mask"]
            kl = per_token_kl(self._policy_logps, grpo_batch.ref_per_token_logps).float()
            sums = torch.stack([(kl * mask).sum(), mask.sum().float()])
            total, tokens = gather(sums.unsqueeze(0)).sum(0).tolist()
            self._token_kl[metrics["mode"]].add(total, tokens)
        return loss, metrics

    def _update_metrics(self: Any, metrics_data: dict[str, Any]) -> None:
        entropy = metrics_data["entropy"]
        if "entropy_logs" in entropy:  # NaN where no token of a completion counts, and NaN is no JSON
            entropy["entropy_logs"] = [None if math.isnan(one) else one for one in entropy["entropy_logs"]]
        super()._update_metrics(metrics_data)  # type: ignore[misc]

    def log(self: Any, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log means over tokens where there are such, and over what is finite in any case."""
        mode = "train" if self.model.training else "eval"
        metrics = self._metrics[mode]
        token_kl = self._token_kl.pop(mode, None)
        if token_kl is not None:
            metrics["kl"] = [token_kl.value] if token_kl.weight else []
        for name, values in list(metrics.items()):
            bad = sum(not math.isfinite(float(value)) for value in values)
            if bad:
                self._name_once(name, bad, len(values))
                metrics[name] = with_mean_for_nonfinite(values)
            if not metrics[name]:
                del metrics[name]
        super().log(logs, start_time)  # type: ignore[misc]

    def _name_once(self: Any, name: str, bad: int, of: int) -> None:
        if name not in self._named:
            self._named.add(name)
            logger.warning(
                f"swift-grpo-ext: metric {name} was not finite in {bad} of {of} micro-batches before step "
                f"{self.state.global_step}; logged means leave such values out."
            )
