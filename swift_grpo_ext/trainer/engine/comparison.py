"""One rank's comparison of a few completions: what the engine claims, and what the trainer computes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import replace
from itertools import zip_longest
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn

from swift_grpo_ext.group.logps import Sampling, sampled_logps
from swift_grpo_ext.models.families import family_of
from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.engine import agreement
from swift_grpo_ext.trainer.engine.agreement import EARLY, Agreement, Distance, distance
from swift_grpo_ext.trainer.engine.prompts import grid_difference, prompt_difference
from swift_grpo_ext.trainer.host import Host, base_model, unwrapped
from swift_grpo_ext.trainer.inference import collated, looking
from swift_grpo_ext.trainer.samples import VisionSample
from swift_grpo_ext.watch.records import row_name

Logits: TypeAlias = Float[Tensor, "places vocab"]
PerPlace: TypeAlias = Float[Tensor, " places"]
Hidden: TypeAlias = Float[Tensor, "batch seq _"]
"""States of the last layer, or what the output layer makes of them."""

PLACES = 64
"""Tokens of a completion that are looked at: the first ones, and others spread over the rest."""
_OTHER_SAMPLING: Mapping[str, Sequence[float]] = {
    "temperature": [round(0.05 * k, 2) for k in range(1, 41)],
    "top_p": [0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.99],
    "top_k": [1, 5, 10, 20, 40, 50, 64, 100],
}
_AT_ONCE = 64
"""Tokens whose logits are scored together: 40 MB of a large vocabulary."""
_GAP = 0.1
"""Nats from which on two log-probs of a token are named."""


class Comparison:
    """Compares completions with what the engine, asked to sample so, claims; log-probs if ``scored``.

    Each completion is a batch by itself: pixels of two prompts need not fit into one.
    """

    def __init__(self, host: Host, samples: Sequence[VisionSample], sampling: Sampling, scored: bool) -> None:
        self._host = host
        self._samples = samples
        self._sampling = sampling
        self._is_scored = scored
        self._claims = [sample.claim for sample in samples if sample.claim]
        template = copy(host.template)
        # A copy forgets it, and ms-swift would look for another by the checkpoint's files.
        template.model = host.template.model
        template.padding_free = False
        collations = [collated(host, [sample], template) for sample in samples]
        self._inputs = [inputs for inputs, _ in collations]
        self._masks = [batch.completion_mask[0].bool() for _, batch in collations]
        self._ids = [inputs["input_ids"][0] for inputs in self._inputs]
        for inputs in self._inputs:
            inputs.pop("logits_to_keep", None)
        self._tokens = [
            ids[-len(mask) :][mask].tolist() for ids, mask in zip(self._ids, self._masks, strict=True)
        ]
        self._places = [
            _places(claim.tokens[: len(claim.logps)], tokens) if scored else []
            for claim, tokens in zip(self._claims, self._tokens, strict=True)
        ]
        self._claimed = [[c.logps[p] for p in ps] for c, ps in zip(self._claims, self._places, strict=True)]
        targets = [ids[p] for ids, ps in zip(self._tokens, self._places, strict=True) for p in ps]
        self._targets = torch.tensor(targets, dtype=torch.long, device=host.accelerator.device)
        self._logits = torch.zeros(0, 1)

    def forward(self) -> None:
        """Compute the trainer's logits, where log-probs are compared. All ranks call it together."""
        if self._is_scored:
            self._logits = self._logits_of(self._host.model)

    def as_configured(self) -> Agreement:
        """This rank's share of the check: distances to what the trainer computes."""
        values = self._scored(self._logits, self._sampling)
        computed = [part.tolist() for part in values.split(list(map(len, self._places)))]
        begin = Distance()
        rest = Distance()
        for places, engine, trainer in zip(self._places, self._claimed, computed, strict=True):
            early = sum(place < EARLY for place in places)
            begin += distance(engine[:early], trainer[:early])
            rest += distance(engine[early:], trainer[early:])
        tokens = (begin + rest).tokens or 1.0
        return Agreement(
            self._host.state.global_step,
            begin,
            rest,
            engine_logp=sum(map(sum, self._claimed)) / tokens,
            trainer_logp=sum(map(sum, computed)) / tokens,
            prompt=self._prompt(),
            first_gap=self._first_gap(computed),
        )

    def otherwise(self) -> dict[str, Distance]:
        """Distances to what it would compute were the engine set otherwise; the same names on every rank."""
        claimed = [logp for of_row in self._claimed for logp in of_row]
        return {name: distance(claimed, logps.tolist()) for name, logps in self._hypotheses()}

    def _hypotheses(self) -> Iterator[tuple[str, PerPlace]]:
        configured = self._sampling
        for setting, values in _OTHER_SAMPLING.items():
            for value in values:
                if value != getattr(configured, setting):
                    settings: dict[str, Any] = {setting: value}
                    yield f"{setting} {value:g}", self._scored(self._logits, replace(configured, **settings))
        unfiltered = Sampling(configured.temperature, forbidden=configured.forbidden)
        if configured != unfiltered:
            yield agreement.UNFILTERED, self._scored(self._logits, unfiltered)
            yield agreement.RAW, self._scored(self._logits, Sampling())
        for name, model, context in self._other_models():
            with context:
                yield name, self._scored(self._logits_of(model), configured)

    def _scored(self, logits: Logits, sampling: Sampling) -> PerPlace:
        parts = zip(logits.split(_AT_ONCE), self._targets.split(_AT_ONCE), strict=True)
        return torch.cat([sampled_logps(*part, sampling) for part in parts])

    def _logits_of(self, model: nn.Module) -> Logits:
        """Logits that predict the tokens at the places. All ranks call it together."""
        with looking(self._host, model):
            return torch.cat([self._logits_of_row(model, row) for row in range(len(self._inputs))])

    def _logits_of_row(self, model: nn.Module, row: int) -> Logits:
        """The same of one completion; the others' logits are not computed."""
        mask = self._masks[row]
        places = torch.tensor(self._places[row], dtype=torch.long)
        keep = len(mask)
        chosen = mask.nonzero()[:, 0][places]
        head = base_model(self._host, model).get_output_embeddings()
        logits_of: Callable[[Hidden], Hidden] = head.forward

        def of_chosen(hidden: Hidden) -> Float[Tensor, "batch places vocab"]:
            return logits_of(hidden[:, -keep - 1 : -1][:, chosen])

        inputs = self._inputs[row]
        with swapped(head, "forward", of_chosen), self._host.passes.in_step(model, inputs):
            logits: Float[Tensor, "batch places vocab"] = model(**inputs).logits
        return logits.flatten(0, -2)

    def _other_models(self) -> Iterator[tuple[str, object, AbstractContextManager[object]]]:
        host = self._host
        policy = unwrapped(host.model)
        if hasattr(policy, "disable_adapter"):
            yield agreement.NO_ADAPTERS, host.model, policy.disable_adapter()
        if host.ref_model is not None:
            yield agreement.REFERENCE, host.ref_model, nullcontext()

    def _prompt(self) -> str:
        """The first prompt that the engine saw otherwise, or the sizes of its images; empty if none is."""
        template = self._host.template
        family = family_of(template.config)
        placeholders = family.placeholder_token_ids if family else ()
        for ids, sample in zip(self._ids, self._samples, strict=True):
            if sample.claim and sample.claim.prompt:
                seen = sample.claim.prompt
                decode = template.tokenizer.decode
                if words := prompt_difference(seen, ids.tolist(), placeholders, decode):
                    return f"{words} ({row_name(sample)})"
        sizes = [size for claim in self._claims for size in claim.sizes]
        given = (inputs.get("image_grid_thw") for inputs in self._inputs)
        grids = [grid for image_grids in given if image_grids is not None for grid in image_grids.tolist()]
        return grid_difference(sizes, grids)

    def _first_gap(self, computed: Sequence[Sequence[float]]) -> str:
        """The first token of a completion whose log-probs clearly differ, in words; empty without one."""
        decode = self._host.template.tokenizer.decode
        rows = zip(self._places, self._claimed, computed, strict=True)
        for row, (places, of_engine, of_trainer) in enumerate(rows):
            for place, engine, trainer in zip(places, of_engine, of_trainer, strict=True):
                if abs(engine - trainer) > _GAP:
                    tokens = self._tokens[row]
                    around = decode(tokens[max(0, place - 6) : place + 6])
                    return (
                        f"they part at token {place} ({decode(tokens[place : place + 1])!r} in {around!r}: "
                        f"engine {engine:.3f}, trainer {trainer:.3f}) of {row_name(self._samples[row])}"
                    )
        return ""


def _places(claimed: Sequence[int], tokens: Sequence[int]) -> list[int]:
    """Which tokens of a completion are compared: those that the engine sampled and that are trained on."""
    pairs = enumerate(zip_longest(claimed, tokens))
    same = next((place for place, (engine, trainer) in pairs if engine != trainer), len(tokens))
    if same <= PLACES:
        return list(range(same))
    spread = torch.linspace(EARLY, same - 1, PLACES - EARLY).long().unique().tolist()
    return [*range(EARLY), *spread]


def together(parts: Sequence[Agreement]) -> Agreement:
    """The check over ranks."""
    begin, rest = (sum(each, Distance()) for each in zip(*((p.begin, p.rest) for p in parts), strict=True))
    tokens = (begin + rest).tokens or 1.0
    return replace(
        parts[0],
        begin=begin,
        rest=rest,
        engine_logp=sum(part.engine_logp * part.all.tokens for part in parts) / tokens,
        trainer_logp=sum(part.trainer_logp * part.all.tokens for part in parts) / tokens,
        prompt=next((part.prompt for part in parts if part.prompt), ""),
        first_gap=next((part.first_gap for part in parts if part.first_gap), ""),
    )
