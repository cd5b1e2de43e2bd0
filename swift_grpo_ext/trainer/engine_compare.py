"""One rank's comparison of a few completions: what the engine claims, and what the trainer computes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from swift_grpo_ext.group.sampled_logps import Sampling, sampled_logps
from swift_grpo_ext.models.families import family_of
from swift_grpo_ext.trainer.host import Host
from swift_grpo_ext.trainer.samples import VisionSample
from swift_grpo_ext.trainer.teacher_forced import TeacherForced
from swift_grpo_ext.watch import agreement
from swift_grpo_ext.watch.agreement import EARLY, Agreement, Distance, distance
from swift_grpo_ext.watch.garbage import is_garbage
from swift_grpo_ext.watch.prompts import prompt_difference
from swift_grpo_ext.watch.rollout import row_name

PLACES = 64
"""Tokens of a completion that are looked at: the first ones, and others spread over the rest."""
_TEMPERATURES = tuple(round(0.05 * k, 2) for k in range(1, 41))
_PARTED = 0.1
"""Nats from which on two log-probs of a token are named."""


@dataclass(frozen=True)
class Claim:
    """What the engine said of one completion.

    Attributes:
        row: Place in the rank's generation batch.
        prompt: Token ids of the prompt that it saw; None if it does not tell.
        tokens: Ids that it sampled.
        logps: Their log-probs, in nats; the last ones may be missing.
    """

    row: int
    prompt: Sequence[int] | None
    tokens: Sequence[int]
    logps: Sequence[float]


@dataclass(frozen=True)
class Compared:
    """This rank's share of a check.

    Attributes:
        begin, rest: Distances over the first tokens of completions, and over the others.
        engine_logp, trainer_logp, garbage, completions: Sums.
        prompt, parted: In words.
    """

    begin: Distance
    rest: Distance
    engine_logp: float
    trainer_logp: float
    garbage: float
    completions: int
    prompt: str
    parted: str


class Comparison:
    """Runs the trainer's model over the claimed completions. All ranks make one together.

    Args:
        host: The trainer.
        claims: What the engine said.
        samples: The completions, one for each claim.
        sampling: How the engine is asked to draw tokens.
    """

    def __init__(
        self, host: Host, claims: Sequence[Claim], samples: Sequence[VisionSample], sampling: Sampling
    ) -> None:
        self._host, self._claims, self._samples, self._sampling = host, claims, samples, sampling
        self._forced = TeacherForced(host, samples)
        self._places = [_places(c, tokens) for c, tokens in zip(claims, self._forced.tokens, strict=True)]
        self._told = [[c.logps[p] for p in chosen] for c, chosen in zip(claims, self._places, strict=True)]
        self._targets = self._forced.targets(self._places)
        self._logits = self._forced.logits(host.model, self._places)

    def as_configured(self) -> Compared:
        """Distances to what the trainer computes."""
        ours = _split(sampled_logps(self._logits, self._targets, self._sampling), self._places)
        begin, rest = Distance(), Distance()
        for chosen, one, other in zip(self._places, self._told, ours, strict=True):
            early = sum(place < EARLY for place in chosen)
            begin += distance(one[:early], other[:early])
            rest += distance(one[early:], other[early:])
        return Compared(
            begin,
            rest,
            engine_logp=sum(map(sum, self._told)),
            trainer_logp=sum(map(sum, ours)),
            garbage=sum(is_garbage(s.messages[-1]["content"], s.is_truncated) for s in self._samples),
            completions=len(self._claims),
            prompt=next(filter(None, map(self._prompt, self._claims, self._forced.rows, self._samples)), ""),
            parted=self._parted(ours),
        )

    def otherwise(self) -> dict[str, Distance]:
        """Distances to what it would compute were the engine set otherwise; the same names on every rank."""
        told = [logp for one in self._told for logp in one]
        return {name: distance(told, logps.tolist()) for name, logps in self._hypotheses()}

    def _hypotheses(self) -> Iterator[tuple[str, Tensor]]:
        logits, targets, sampling = self._logits, self._targets, self._sampling
        for temperature in _TEMPERATURES:
            if temperature != sampling.temperature:
                other = replace(sampling, temperature=temperature)
                yield f"{agreement.TEMPERATURE}{temperature:g}", sampled_logps(logits, targets, other)
        unfiltered = Sampling(sampling.temperature, forbidden=sampling.forbidden)
        if sampling != unfiltered:
            yield agreement.UNFILTERED, sampled_logps(logits, targets, unfiltered)
            yield agreement.RAW, sampled_logps(logits, targets, Sampling())
        for name, model, context in self._other_models():
            with context:
                others = self._forced.logits(model, self._places)
            yield name, sampled_logps(others, targets, sampling)

    def _other_models(self) -> Iterator[tuple[str, Any, AbstractContextManager[Any]]]:
        host = self._host
        unwrapped = host.accelerator.unwrap_model(host.model)
        if hasattr(unwrapped, "disable_adapter"):
            yield agreement.NO_ADAPTERS, host.model, unwrapped.disable_adapter()
        if host.ref_model is not None:
            yield agreement.REFERENCE, host.ref_model, nullcontext()

    def _prompt(self, claim: Claim, row: Sequence[int], sample: VisionSample) -> str:
        if not claim.prompt:
            return ""
        template = self._host.template
        family = family_of(template.config)
        words = prompt_difference(
            claim.prompt, row, family.placeholder_token_ids if family else (), template.tokenizer.decode
        )
        return f"{words} ({row_name(sample)})" if words else ""

    def _parted(self, ours: Sequence[Sequence[float]]) -> str:
        """The first token of a completion at which the two part, in words; empty if there is none."""
        decode = self._host.template.tokenizer.decode
        for row, (chosen, *pairs) in enumerate(zip(self._places, self._told, ours, strict=True)):
            for place, one, other in zip(chosen, *pairs, strict=True):
                if abs(one - other) > _PARTED:
                    tokens = self._forced.tokens[row]
                    around = decode(tokens[max(0, place - 6) : place + 6])
                    return (
                        f"they part at token {place} ({decode(tokens[place : place + 1])!r} in {around!r}: "
                        f"engine {one:.3f}, trainer {other:.3f}) of {row_name(self._samples[row])}"
                    )
        return ""


def _places(claim: Claim, tokens: Sequence[int]) -> list[int]:
    """Which tokens of a completion are compared: those that the engine sampled and that are trained on."""
    known = min(len(claim.logps), len(tokens), len(claim.tokens))
    same = next((n for n in range(known) if claim.tokens[n] != tokens[n]), known)
    if same <= PLACES:
        return list(range(same))
    spread = torch.linspace(EARLY, same - 1, PLACES - EARLY).long().unique().tolist()
    return [*range(EARLY), *spread]


def _split(values: Tensor, places: Sequence[Sequence[int]]) -> list[list[float]]:
    return [part.tolist() for part in values.split([len(chosen) for chosen in places])]


def together(
    step: int, parts: Sequence[Compared], otherwise: Sequence[Mapping[str, Distance]] = ()
) -> Agreement:
    """The check over all ranks.

    Args:
        step: Optimizer steps taken.
        parts: Of the ranks.
        otherwise: Their distances to hypotheses.
    """
    begin = sum((part.begin for part in parts), Distance())
    rest = sum((part.rest for part in parts), Distance())
    tokens, completions = (begin + rest).tokens or 1.0, sum(part.completions for part in parts)
    return Agreement(
        step=step,
        completions=completions,
        begin=begin,
        rest=rest,
        hypotheses={
            name: sum((found[name] for found in otherwise), Distance()) for name in next(iter(otherwise), ())
        },
        engine_logp=sum(part.engine_logp for part in parts) / tokens,
        trainer_logp=sum(part.trainer_logp for part in parts) / tokens,
        garbage=sum(part.garbage for part in parts) / completions,
        prompt=next((part.prompt for part in parts if part.prompt), ""),
        parted=next((part.parted for part in parts if part.parted), ""),
    )
