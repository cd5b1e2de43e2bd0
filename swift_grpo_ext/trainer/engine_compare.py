"""One rank's comparison of a few completions: what the engine claims, and what the trainer computes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from swift_grpo_ext.group.logps import Sampling, sampled_logps
from swift_grpo_ext.models.families import family_of
from swift_grpo_ext.trainer.host import Host
from swift_grpo_ext.trainer.samples import VisionSample
from swift_grpo_ext.trainer.teacher_forced import TeacherForced
from swift_grpo_ext.watch import agreement
from swift_grpo_ext.watch.agreement import EARLY, Agreement, Distance, distance
from swift_grpo_ext.watch.prompts import grid_difference, prompt_difference
from swift_grpo_ext.watch.rollout import row_name

PLACES = 64
"""Tokens of a completion that are looked at: the first ones, and others spread over the rest."""
_OTHER_SAMPLING: Mapping[str, Sequence[float]] = {
    "temperature": [round(0.05 * k, 2) for k in range(1, 41)],
    "top_p": [0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.99],
    "top_k": [1, 5, 10, 20, 40, 50, 64, 100],
}
_AT_ONCE = 64
"""Tokens whose logits are scored together: 40 MB of a large vocabulary."""
_PARTED = 0.1
"""Nats from which on two log-probs of a token are named."""


class Comparison:
    """Holds completions against what the engine, asked to sample so, claims. All ranks make one together.

    With `scored` log-probs are compared, and not only prompts.
    """

    def __init__(self, host: Host, samples: Sequence[VisionSample], sampling: Sampling, scored: bool) -> None:
        self._host, self._samples, self._sampling = host, samples, sampling
        self._claims = [sample.claim for sample in samples if sample.claim]
        self._forced = TeacherForced(host, samples)
        self._places = [
            _places(claim.tokens[: len(claim.logps)], tokens) if scored else []
            for claim, tokens in zip(self._claims, self._forced.tokens, strict=True)
        ]
        self._told = [
            [c.logps[p] for p in chosen] for c, chosen in zip(self._claims, self._places, strict=True)
        ]
        self._targets = self._forced.targets(self._places)
        self._logits = self._forced.logits(host.model, self._places) if scored else torch.zeros(0, 1)

    def as_configured(self) -> Agreement:
        """This rank's share of the check: distances to what the trainer computes."""
        values = self._scored(self._logits, self._sampling)
        ours = [part.tolist() for part in values.split(list(map(len, self._places)))]
        begin, rest = Distance(), Distance()
        for chosen, one, other in zip(self._places, self._told, ours, strict=True):
            early = sum(place < EARLY for place in chosen)
            begin += distance(one[:early], other[:early])
            rest += distance(one[early:], other[early:])
        tokens = (begin + rest).tokens or 1.0
        return Agreement(
            self._host.state.global_step,
            begin,
            rest,
            engine_logp=sum(map(sum, self._told)) / tokens,
            trainer_logp=sum(map(sum, ours)) / tokens,
            prompt=next(filter(None, map(self._prompt, self._forced.rows, self._samples)), self._grids()),
            parted=self._parted(ours),
        )

    def otherwise(self) -> dict[str, Distance]:
        """Distances to what it would compute were the engine set otherwise; the same names on every rank."""
        told = [logp for one in self._told for logp in one]
        return {name: distance(told, logps.tolist()) for name, logps in self._hypotheses()}

    def _hypotheses(self) -> Iterator[tuple[str, Tensor]]:
        asked = self._sampling
        for setting, values in _OTHER_SAMPLING.items():
            for value in values:
                if value != getattr(asked, setting):
                    settings: dict[str, Any] = {setting: value}
                    yield f"{setting} {value:g}", self._scored(self._logits, replace(asked, **settings))
        unfiltered = Sampling(asked.temperature, forbidden=asked.forbidden)
        if asked != unfiltered:
            yield agreement.UNFILTERED, self._scored(self._logits, unfiltered)
            yield agreement.RAW, self._scored(self._logits, Sampling())
        for name, model, context in self._other_models():
            with context:
                yield name, self._scored(self._forced.logits(model, self._places), asked)

    def _scored(self, logits: Tensor, sampling: Sampling) -> Tensor:
        parts = zip(logits.split(_AT_ONCE), self._targets.split(_AT_ONCE), strict=True)
        return torch.cat([sampled_logps(*part, sampling) for part in parts])

    def _other_models(self) -> Iterator[tuple[str, object, AbstractContextManager[object]]]:
        host = self._host
        unwrapped = host.accelerator.unwrap_model(host.model)
        if hasattr(unwrapped, "disable_adapter"):
            yield agreement.NO_ADAPTERS, host.model, unwrapped.disable_adapter()
        if host.ref_model is not None:
            yield agreement.REFERENCE, host.ref_model, nullcontext()

    def _prompt(self, row: Sequence[int], sample: VisionSample) -> str:
        if not sample.claim or not sample.claim.prompt:
            return ""
        template = self._host.template
        family = family_of(template.config)
        placeholders = family.placeholder_token_ids if family else ()
        words = prompt_difference(sample.claim.prompt, row, placeholders, template.tokenizer.decode)
        return f"{words} ({row_name(sample)})" if words else ""

    def _grids(self) -> str:
        return grid_difference([size for claim in self._claims for size in claim.sizes], self._forced.grids)

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


def _places(claimed: Sequence[int], tokens: Sequence[int]) -> list[int]:
    """Which tokens of a completion are compared: those that the engine sampled and that are trained on."""
    pairs = enumerate(zip_longest(claimed, tokens))
    same = next((place for place, (one, other) in pairs if one != other), len(tokens))
    if same <= PLACES:
        return list(range(same))
    spread = torch.linspace(EARLY, same - 1, PLACES - EARLY).long().unique().tolist()
    return [*range(EARLY), *spread]


def together(parts: Sequence[Agreement]) -> Agreement:
    """The check over ranks."""
    begin, rest = (sum(each, Distance()) for each in zip(*((p.begin, p.rest) for p in parts), strict=True))
    weights = [part.all.tokens / ((begin + rest).tokens or 1.0) for part in parts]
    return replace(
        parts[0],
        begin=begin,
        rest=rest,
        engine_logp=sum(part.engine_logp * weight for part, weight in zip(parts, weights, strict=True)),
        trainer_logp=sum(part.trainer_logp * weight for part, weight in zip(parts, weights, strict=True)),
        prompt=next((part.prompt for part in parts if part.prompt), ""),
        parted=next((part.parted for part in parts if part.parted), ""),
    )
