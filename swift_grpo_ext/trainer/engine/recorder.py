"""Writes down what transformers' ``generate`` draws: the log-probs that its engine does not report."""

from collections.abc import Callable
from typing import TypeAlias

from jaxtyping import Float, Int
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList, TopKLogitsWarper

from swift_grpo_ext.watch.guard import Guard, watches

LastLogits: TypeAlias = Float[Tensor, "batch vocab"]
RECORDER = "recorder of transformers' engine"  # its name in the guard


class Recorder(LogitsProcessor):
    """Last of the processors of one ``generate``: sees the scores that tokens are drawn from.

    A token is known at the next call, so the log-prob of the last one is not written down; of a batch, those
    of so many rows are, evenly spread. `top_k` is what ``generate`` used; 0: all tokens.
    """

    def __init__(self, rows: int, guard: Guard) -> None:
        self._rows = rows
        self.guard = guard
        self._last: LastLogits | None = None
        self._drawn: list[Float[Tensor, " rows"]] = []
        self._calls = self._stride = 0
        self.batch = self.top_k = 0

    def after(self, make: Callable[..., LogitsProcessorList]) -> Callable[..., LogitsProcessorList]:
        """``GenerationMixin._get_logits_processor`` with this one at the end, in the first ``generate``."""

        def with_recorder(*args: object, **kwargs: object) -> LogitsProcessorList:
            processors = make(*args, **kwargs)
            return self._join(processors) or processors

        return with_recorder

    @watches(RECORDER)
    def _join(self, processors: LogitsProcessorList) -> LogitsProcessorList:
        self._calls += 1
        filters = [p.top_k for p in processors if isinstance(p, TopKLogitsWarper)]
        self.top_k = max(filters, default=0)  # what ``generate`` used; 0: all tokens
        return LogitsProcessorList([*processors, self]) if self._calls == 1 else processors

    def __call__(self, input_ids: Int[Tensor, "batch seq"], scores: LastLogits) -> LastLogits:
        """Book the token of the step before, and keep the scores of this one."""
        self._book(input_ids, scores)
        return scores

    @watches(RECORDER, reads_device=True)
    def _book(self, input_ids: Int[Tensor, "batch seq"], scores: LastLogits) -> None:
        self.batch = len(scores)
        self._stride = max(1, self.batch // self._rows)
        chosen = slice(0, None, self._stride)
        if self._last is not None:
            self._drawn.append(self._last.gather(-1, input_ids[chosen][:, -1:])[:, 0])
        self._last = scores[chosen].float().log_softmax(-1)

    def of_row(self, row: int, batch: int) -> list[float]:
        """Log-probs of the tokens that a row of the batch drew, but for the last one; empty if unknown."""
        if self.batch != batch or self._calls != 1 or row % self._stride or not self._drawn:
            return []
        return [float(logps[row // self._stride]) for logps in self._drawn]
