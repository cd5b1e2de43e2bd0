"""One rank's comparison of a few completions: what the engine claims, and what the trainer computes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, replace
from itertools import compress, groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn

from swift_grpo_ext.group.logps import Sampling, sampled_logps
from swift_grpo_ext.models.families import family_of
from swift_grpo_ext.models.image_pipeline import picture_of
from swift_grpo_ext.models.template import images_in
from swift_grpo_ext.swap import swapped
from swift_grpo_ext.trainer.engine import agreement
from swift_grpo_ext.trainer.engine.agreement import (
    Agreement,
    Distance,
    EngineFacts,
    TurnFigures,
    begin_and_rest,
    distance,
    total,
)
from swift_grpo_ext.trainer.engine.prompts import (
    changed_image,
    first_difference,
    grid_difference,
    lost_image,
    prompt_difference,
)
from swift_grpo_ext.trainer.engine.turns import Place, longest_prompt, name_of, places, rewritten, turn_at
from swift_grpo_ext.trainer.engine.vision import (
    OTHER_PICTURES,
    PictureChange,
    positions_by,
    videos_as_images,
    without_adapters,
)
from swift_grpo_ext.trainer.host import Host, base_model, tower_modules, unwrapped
from swift_grpo_ext.trainer.inference import collated, looking
from swift_grpo_ext.trainer.logging import PictureFolder
from swift_grpo_ext.trainer.samples import Claim, Inputs, VisionSample

Logits: TypeAlias = Float[Tensor, "places vocab"]
PerPlace: TypeAlias = Float[Tensor, " places"]
Hidden: TypeAlias = Float[Tensor, "batch seq _"]
"""States of the last layer, or what the output layer makes of them."""
_OTHER_SAMPLING: Mapping[str, Sequence[float]] = {
    "temperature": [round(0.05 * k, 2) for k in range(1, 41)],
    "top_p": [0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.99],
    "top_k": [1, 5, 10, 20, 40, 50, 64, 100],
}
_AT_ONCE = 64
"""Tokens whose logits are scored together: 40 MB of a large vocabulary."""
_GAP = 0.1
"""Nats from which on two log-probs of a token are named."""


@dataclass(frozen=True)
class _Row:
    """A completion that is compared."""

    sample: VisionSample
    inputs: Inputs  # of the trainer's model, all logits of which are computed
    ids: list[int]
    places: list[Place]  # of the tokens that are compared


class Comparison:
    """Compares completions with what the engine, asked to sample so, claims; log-probs if ``scored``.

    Each completion is a batch by itself: pixels of two prompts need not fit into one.
    """

    def __init__(
        self,
        host: Host,
        samples: Sequence[VisionSample],
        sampling: Sampling,
        facts: EngineFacts,
        scored: bool,
    ) -> None:
        self._host = host
        self._sampling = sampling
        self._limit = facts.limit
        self._is_scored = scored
        self._pictures = PictureFolder(Path(host.args.output_dir) / "watch/images")  # later turns hold theirs
        family = family_of(host.template.config)
        self._placeholders = family.placeholder_token_ids if family else ()
        self._template = copy(host.template)
        # A copy forgets it, and ms-swift would look for another by the checkpoint's files.
        self._template.model = host.template.model
        self._template.padding_free = False
        self._rows = list(map(self._row, samples))
        self._turns = [
            (row, list(places))
            for row in self._rows
            for _, places in groupby(row.places, key=attrgetter("turn"))
        ]
        targets = [row.ids[place.at] for row in self._rows for place in row.places]
        self._targets = torch.tensor(targets, dtype=torch.long, device=host.accelerator.device)
        self._logits = torch.zeros(0, 1)
        self._apart: list[bool] = []  # which turns are too far apart

    def _row(self, sample: VisionSample) -> _Row:
        inputs, batch = collated(self._host, [sample], self._template)
        inputs.pop("logits_to_keep", None)
        ids = inputs["input_ids"][0].tolist()
        mask = batch.completion_mask[0].bool().tolist()
        trained = [False] * (len(ids) - len(mask)) + mask
        compared = places(sample.claims, ids, trained, self._placeholders) if self._is_scored else []
        return _Row(sample, inputs, ids, compared)

    def as_configured(self) -> Agreement:
        """This rank's share of the check: distances to what the trainer computes. For all ranks together."""
        if self._is_scored:
            self._logits = self._logits_of(self._host.model, self._rows)
        values = self._scored(self._logits, self._sampling)
        computed = [part.tolist() for part in values.split([len(places) for _, places in self._turns])]
        claimed = [[place.logp for place in places] for _, places in self._turns]
        begin, rest = begin_and_rest(claimed, computed)
        tokens = (begin + rest).tokens or 1.0
        gaps = list(map(distance, claimed, computed))
        self._apart = [gap.mean_ratio > self._limit for gap in gaps]
        return Agreement(
            self._host.state.global_step,
            begin,
            rest,
            total(compress(gaps, self._apart)),
            engine_logp=sum(map(sum, claimed)) / tokens,
            trainer_logp=sum(map(sum, computed)) / tokens,
            prompt=next(filter(None, map(self._prompt, self._rows)), ""),
            history=next(filter(None, map(self._history, self._rows)), ""),
            first_gap=self._first_gap(computed),
            turns=tuple(map(self._figures, self._turns, computed, gaps)),
        )

    def otherwise(self) -> dict[str, Distance]:
        """Distances to what it would compute were the engine set otherwise; the same names on every rank.

        They are over the turns that are apart. Where a name is tried twice the nearer one counts.
        """
        apart = [far for far, (_, sampled) in zip(self._apart, self._turns, strict=True) for _ in sampled]
        logps = [place.logp for row in self._rows for place in row.places]
        claimed = list(compress(logps, apart))
        found: dict[str, Distance] = {}
        for name, computed in self._hypotheses():
            gap = distance(claimed, list(compress(computed.tolist(), apart)))
            found[name] = min(found.get(name, gap), gap, key=attrgetter("mean"))
        return found

    def _hypotheses(self) -> Iterator[tuple[str, PerPlace]]:
        configured = self._sampling
        for setting, values in _OTHER_SAMPLING.items():
            for value in values:
                settings: dict[str, Any] = {setting: value}
                yield f"{setting} {value:g}", self._scored(self._logits, replace(configured, **settings))
        unfiltered = Sampling(configured.temperature, forbidden=configured.forbidden)
        if configured != unfiltered:
            yield agreement.UNFILTERED, self._scored(self._logits, unfiltered)
            yield agreement.RAW, self._scored(self._logits, Sampling())
        for name, model, context in self._other_models():
            with context:
                yield name, self._scored(self._logits_of(model, self._rows), configured)
        if self._host.is_multimodal:
            for name, rows in self._other_pixels():
                yield name, self._scored(self._logits_of(self._host.model, rows), configured)

    def _scored(self, logits: Logits, sampling: Sampling) -> PerPlace:
        parts = zip(logits.split(_AT_ONCE), self._targets.split(_AT_ONCE), strict=True)
        return torch.cat([sampled_logps(*part, sampling) for part in parts])

    def _logits_of(self, model: nn.Module, rows: Sequence[_Row]) -> Logits:
        """Logits that predict the tokens at the places. All ranks call it together."""
        with looking(self._host, model):
            return torch.cat([self._logits_of_row(model, row) for row in rows])

    def _logits_of_row(self, model: nn.Module, row: _Row) -> Logits:
        """The same of one completion; the others' logits are not computed."""
        states = torch.tensor([place.at - 1 - len(row.ids) for place in row.places], dtype=torch.long)
        head = base_model(self._host, model).get_output_embeddings()
        logits_of: Callable[[Hidden], Hidden] = head.forward

        def of_chosen(hidden: Hidden) -> Float[Tensor, "batch places vocab"]:
            return logits_of(hidden[:, states])

        with swapped(head, "forward", of_chosen), self._host.passes.in_step(model, row.inputs):
            logits: Float[Tensor, "batch places vocab"] = model(**row.inputs).logits
        return logits.flatten(0, -2)

    def _other_models(self) -> Iterator[tuple[str, nn.Module, AbstractContextManager[object]]]:
        host = self._host
        towers = tower_modules(host, host.model)
        policy = unwrapped(host.model)
        if hasattr(policy, "disable_adapter"):
            yield agreement.NO_ADAPTERS, host.model, policy.disable_adapter()
            if towers:
                yield agreement.TOWER, host.model, without_adapters(towers)
        if host.ref_model is not None:
            yield agreement.REFERENCE, host.ref_model, nullcontext()
            if towers:
                yield agreement.TOWER, host.model, _forwards_of(tower_modules(host, host.ref_model), towers)
        if host.is_multimodal:
            for name, rows in agreement.OTHER_POSITIONS.items():
                yield name, host.model, positions_by(rows, base_model(host, host.model))

    def _other_pixels(self) -> Iterator[tuple[str, list[_Row]]]:
        for name, change in OTHER_PICTURES.items():
            yield name, [self._with_pictures(row, change, 0) for row in self._rows]
            if self._host.args.multi_turn_scheduler:
                yield name, [self._with_pictures(row, change, self._images_before(row)) for row in self._rows]
        processor = self._host.template.processor
        if getattr(processor, "video_processor", None):
            with videos_as_images(processor):
                yield agreement.NORMS, [self._row(row.sample) for row in self._rows]

    def _images_before(self, row: _Row) -> int:
        """How many images a row has had before its first turn that is apart."""
        apart = (places[0].turn for of, places in compress(self._turns, self._apart) if of is row)
        first = min(apart, default=1)
        return len(row.sample.claims[first - 2].sizes or ()) if first > 1 else 0

    def _with_pictures(self, row: _Row, change: PictureChange, first: int) -> _Row:
        """The row as it would be if its images were changed, from one on."""
        processor = getattr(self._host.template.processor, "image_processor", None)
        side = getattr(processor, "patch_size", None)
        grids = row.inputs.get("image_grid_thw")
        sample = copy(row.sample)
        sizes: list[tuple[int, int] | None] = [None] * len(sample.images)
        if grids is not None and isinstance(side, int) and len(grids) == len(sizes):
            sizes = [(columns * side, rows * side) for _, rows, columns in grids.tolist()]
        changed_images = list(map(change, map(picture_of, sample.images), sizes))
        sample.images = [*sample.images[:first], *changed_images[first:]]
        changed = self._row(sample)
        return changed if len(changed.ids) == len(row.ids) else row

    def _prompt(self, row: _Row) -> str:
        """How the engine saw a row's prompts or images otherwise; empty if it did not."""
        sample = row.sample
        claims = sample.claims
        grids = row.inputs.get("image_grid_thw")
        words = (
            self._lost_image(sample)
            or self._difference(sample, claims, row.ids)
            or next(filter(None, (self._asked_otherwise(sample, turn) for turn in rewritten(claims))), "")
            or ("" if grids is None else grid_difference(claims[-1].sizes or (), grids.tolist()))
            or changed_image(claims)
        )
        return f"{words} ({sample.row_label})" if words else ""

    def _lost_image(self, sample: VisionSample) -> str:
        claims = sample.claims
        if sample.videos:
            return ""
        given = images_in(message for message in sample.messages if message["role"] != "assistant")
        words = lost_image([claim.sizes for claim in claims], len(sample.images) + len(given))
        for turn, claim in enumerate(claims, 1):
            asked = len(claim.images) + len(images_in(claim.messages))
            if claim.messages and claim.sizes is not None and len(claim.sizes) != asked:
                words = words or f"in turn {turn} the engine saw {len(claim.sizes)} of {asked} images"
        return words

    def _difference(self, sample: VisionSample, claims: Sequence[Claim], ids: Sequence[int]) -> str:
        """How and where the prompt of a sample's first turns differs from the trainer's ids, in words."""
        seen = longest_prompt(claims)
        words = prompt_difference(seen, ids, self._placeholders, self._host.template.tokenizer.decode)
        if not words or not all(claim.prompt for claim in claims):
            return words
        turn = turn_at(first_difference(seen, ids, self._placeholders), claims)
        where = name_of(*turn, sample.claims, sample.messages)
        return f"{where and f'in {where}: '}{words}"

    def _asked_otherwise(self, sample: VisionSample, turn: int) -> str:
        """How the engine saw a turn otherwise than it was asked, in words; empty if it did not."""
        claim = sample.claims[turn - 1]
        messages = [message for message in claim.messages if message.get("content") is not None]
        if not messages:
            return ""
        if messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": "."})
        asked = copy(sample)
        asked.messages = messages
        asked.images = [*claim.images]
        asked.response_token_ids = []
        asked.response_loss_mask = []
        inputs, _ = collated(self._host, [asked], self._template)
        words = self._difference(sample, sample.claims[:turn], inputs["input_ids"][0].tolist())
        return words and f"{words}, as turn {turn} saw it"

    def _history(self, row: _Row) -> str:
        """That a scheduler changed what turns were sampled after, in words; empty if it did not."""
        sample = row.sample
        turns = rewritten(sample.claims)
        if not turns:
            return ""
        return (
            f"turn {', '.join(map(str, turns))} of {sample.row_label} was sampled after another history than "
            "it is trained after: the scheduler rewrote it later, so the turn is compared up to the change"
        )

    def _first_gap(self, computed: Sequence[Sequence[float]]) -> str:
        """The first token of a completion whose log-probs clearly differ, in words; empty without one."""
        for (row, sampled), logps in zip(self._turns, computed, strict=True):
            for place, logp in zip(sampled, logps, strict=True):
                if abs(place.logp - logp) > _GAP:
                    where = name_of(place.turn, True, row.sample.claims, row.sample.messages)
                    token = self._in_words(row.ids, place, logp)
                    return f"they part at {token} of {where and f'{where} of '}{row.sample.row_label}"
        return ""

    def _in_words(self, ids: Sequence[int], place: Place, logp: float) -> str:
        decode = self._host.template.tokenizer.decode
        around = decode(ids[place.at - min(6, place.number) : place.at + 6])
        return (
            f"token {place.number} ({decode(ids[place.at : place.at + 1])!r} in {around!r}: "
            f"engine {place.logp:.3f}, trainer {logp:.3f})"
        )

    def _figures(
        self, compared: tuple[_Row, list[Place]], computed: Sequence[float], gap: Distance
    ) -> TurnFigures:
        row, sampled = compared
        sample = row.sample
        turn = sampled[0].turn
        claim = sample.claims[turn - 1]
        worst, logp = max(zip(sampled, computed, strict=True), key=lambda pair: abs(pair[0].logp - pair[1]))
        seen = sample.images if claim.sizes is None else sample.images[: len(claim.sizes)]
        return TurnFigures(
            row=sample.row_label,
            turn=turn,
            tokens=len(claim.tokens),
            images=", ".join(f"{width} x {height}" for width, height in claim.sizes or ()),
            distance=gap,
            worst=self._in_words(row.ids, worst, logp),
            image=(self._pictures.path_of(seen[-1]) or "") if seen else "",
        )


@contextmanager
def _forwards_of(others: Sequence[nn.Module], modules: Sequence[nn.Module]) -> Iterator[None]:
    """While this is open, modules compute as others do, one by one: a tower as the reference's."""
    with ExitStack() as stack:
        for module, other in zip(modules, others, strict=True):
            stack.enter_context(swapped(module, "forward", other.__call__))
        yield
