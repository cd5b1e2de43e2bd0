"""Where the time of a step goes, and what the package saved of it: one line every so many steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from swift_grpo_ext.watch.phases import PHASES

FIRST, EVERY = 5, 50
"""Steps that the first bill is of, and those after it."""
ADVICE = {
    "prepare": "MAX_PIXELS, or --dataloader_num_workers",
    "encode": "MAX_PIXELS, or more CPU cores for it",
    "vision": "MAX_PIXELS, or a frozen tower (--freeze_vit true)",
    "rollout": "vLLM (--use_vllm true), a shorter --max_completion_length",
    "weight_sync": "--move_model_batches, or LoRA with --vllm_enable_lora true",
    "reward": "a faster reward function",
    "old": "--num_iterations 1, and a gradient_accumulation_steps that steps_per_generation does not exceed",
    "reference": "--beta 0",
    "data": "--dataloader_num_workers",
    "save": "a larger --save_steps",
    "evaluate": "a larger --eval_steps",
}
"""What makes a phase shorter."""
SAVED = {"tokens": "tokens forwarded", "images": "images encoded", "passes": "passes"}
"""Counted work: what was done, and as ``stock NAME`` what ms-swift alone would do."""
_WORTH_A_WORD = 0.3
_LEAST = 0.005
_NO_STEP = ("start",)


class Bill:
    """Adds up the steps of one rank.

    Attributes:
        work: Done since the last line; see `SAVED`.
    """

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()
        self.work: Counter[str] = Counter()
        self._steps, self._of = 0, FIRST

    def add(self, seconds: Mapping[str, float]) -> str:
        """Take in a step's seconds of each phase; the line, if one is due, else nothing."""
        self._seconds.update({name: spent for name, spent in seconds.items() if name not in _NO_STEP})
        self._steps += 1
        return self.close() if self._steps >= self._of else ""

    def close(self) -> str:
        """The line of the steps since the last one; nothing of none."""
        text = line(self._seconds, self.work, self._steps) if self._steps else ""
        self._seconds, self.work, self._steps, self._of = Counter(), Counter(), 0, EVERY
        return text


def line(seconds: Mapping[str, float], work: Mapping[str, float], steps: int) -> str:
    """The bill of some steps.

    Args:
        seconds: Spent in each phase, over all the steps.
        work: Done in them.
        steps: How many; at least 1.

    Example:
        >>> line({"backward": 6.0, "forward": 4.0}, {"tokens": 30, "stock tokens": 100}, 2)
        '5 s a step: backward 60 %, policy forward 40 %; saved 70 % of tokens forwarded'
    """
    total = sum(seconds.values())
    shares = Counter({name: value / total for name, value in seconds.items() if name in PHASES and total})
    shown = {name: share for name, share in shares.most_common() if share >= _LEAST}
    parts = [f"{PHASES[name]} {_percent(share)}" for name, share in shown.items()]
    if (rest := 1 - sum(shown.values())) >= _LEAST:
        parts.append(f"rest {_percent(rest)}")
    text = f"{total / steps:.3g} s a step: {', '.join(parts)}{_saved(work)}"
    longest = next(iter(shown), "")
    if longest in ADVICE and shown[longest] >= _WORTH_A_WORD:
        text += f" ({PHASES[longest]}: {ADVICE[longest]})"
    return text


def _saved(work: Mapping[str, float]) -> str:
    pairs = [(work.get(name, 0), work.get(f"stock {name}", 0), what) for name, what in SAVED.items()]
    saved = [f"{_percent(1 - ours / stock)} of {what}" for ours, stock, what in pairs if ours < stock]
    return f"; saved {', '.join(saved)}" if saved else ""


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
