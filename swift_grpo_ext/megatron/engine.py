"""Does vLLM sample from the policy that Megatron trains? The policy's own passes say it.

At the first update over a generation batch the policy has the weights that the engine has sampled from, and
computes the log-prob of every sampled token, so the comparison costs no pass. Unlike the check of the other
trainer it compares no prompts, and tries no other settings of sampling.
"""

from typing import Any

from accelerate.utils import gather_object
from swift.rl_core.data import GRPOBatch
from torch import Tensor

from swift_grpo_ext.trainer.engine.agreement import (
    Agreement,
    Distance,
    EngineFacts,
    begin_and_rest,
    judge,
    over_ranks,
)
from swift_grpo_ext.trainer.engine.check import FIRST_STEPS, PART
from swift_grpo_ext.trainer.host import once_of_run
from swift_grpo_ext.watch.guard import Guard, watches
from swift_grpo_ext.watch.records import EngineRecord


class EngineCheck:
    """Compares log-probs of the first generation batches, and then every so many steps; 0: never."""

    def __init__(self, host: Any, guard: Guard, every: int) -> None:
        self._host = host
        self.guard = guard
        self._every = every
        self._checks = 0
        self._last_step = 0
        self._due = False
        # Of this rank's completions: their first tokens, and the others.
        self._begin = Distance()
        self._rest = Distance()
        self._history: list[Agreement] = []
        self._say = once_of_run(host, "engine check: ")

    def begin(self) -> None:
        """A generation batch of training is made. Decided by configuration and step: alike on every rank."""
        step = self._host.state.global_step
        often = self._checks < FIRST_STEPS or step - self._last_step >= self._every
        self._due = bool(self._every) and often
        if self._due:
            self._checks += 1
            self._last_step = step

    @watches(PART, reads_device=True)
    def add(self, grpo_batch: GRPOBatch, logps: Tensor) -> None:
        """Take in a micro-batch of the first update, with the policy's log-probs ``(batch, seq)`` of it."""
        sampled = grpo_batch.rollout_per_token_logps
        if not self._due or sampled is None:
            return
        mask = grpo_batch.completion_mask.bool()
        engine, policy = (
            [row[completion].tolist() for row, completion in zip(rows, mask, strict=True)]
            for rows in (sampled, logps.detach())
        )
        begin, rest = begin_and_rest(engine, policy)
        self._begin += begin
        self._rest += rest

    def compare(self) -> EngineRecord | None:
        """What the check of an update shows; None if none was due, or possible. Every rank comes here."""
        if not self._due:
            return None
        self._due = False
        of_ranks = gather_object([Agreement(self._last_step, self._begin, self._rest)])
        self._begin = self._rest = Distance()
        return self.guard.run(PART, lambda: self._judged(over_ranks(of_ranks)))

    def _judged(self, now: Agreement) -> EngineRecord | None:
        host = self._host
        if not now.all.tokens:
            self._say("log-probs not compared: the engine returns none")
            return None
        half = host.config.params_dtype.itemsize == 2
        record = judge(now, self._history, EngineFacts(f"vLLM {host.args.vllm_mode}", half=half))
        self._history.append(now)
        return record
