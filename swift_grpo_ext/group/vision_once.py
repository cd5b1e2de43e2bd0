"""Image features for the passes of a generation batch, from one run of the tower over each distinct image.

A stand-in takes the place of what encodes pixels: the tower, where merging patches to tokens is part of it,
else ``get_image_features``. It answers from the cache, and encodes what is missing there with the original:
so ZeRO-3 and FSDP gather the tower's parameters as always.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from swift_grpo_ext.group.media import Family, ModelInputs
from swift_grpo_ext.group.vision import FeatureCache, Features, Images, Key, Tower
from swift_grpo_ext.swap import swapped

# What an encoder answers: a tensor, an output class, or in transformers 4 a tuple of tensors.
Encoded: TypeAlias = Any
Wanted = Sequence[tuple[Images, Sequence[int]]]
_LARGE = ("last_hidden_state", "hidden_states", "attentions")
_DEEPSTACK = "deepstack_features"


class VisionOnce:
    """Encodes the images of training's, or of evaluation's, generation batches; keeps ``limit`` bytes."""

    def __init__(self, family: Family, limit: int, agree: Callable[[int], int]) -> None:
        self.family = family
        self.cache = FeatureCache(limit)
        self._agree = agree  # the most calls of the tower that any rank must make
        self._form: Encoded | None = None  # what the encoder answered last, emptied

    @contextmanager
    def standing_in(self, base: nn.Module, wanted: Wanted | None) -> Iterator[None]:
        """While this is open, the model gets features of the ``wanted`` images for the pixels it encodes.

        They stand in the order of the inputs, for each medium. Of none, zeros answer for the blank image that
        the template encodes. None if they cannot be told apart: the tower runs over them as they are.
        """
        owner, name = encoder_of(base, self.family)
        encode = getattr(owner, name)
        of_tower = name == "forward"  # which calls the grid of any medium by one name

        def answer(*args: Any, **kwargs: Any) -> Encoded:
            given = args[0] if args else kwargs["pixel_values"]
            if wanted is None:
                return self._as_they_are(lambda: encode(*args, **kwargs))
            asked = _asked_for(wanted, args, kwargs)
            options = {key: one for key, one in kwargs.items() if not isinstance(one, Tensor)}

            def tower(images: Images, which: Sequence[int]) -> Features:
                pixels = images.pixels_of(which).to(given.device, given.dtype)
                grids = images.grid_of(which).items()
                named = {"grid_thw" if of_tower else key: one.to(given.device) for key, one in grids}
                return self._note_form(encode(pixels, **{**options, **named}))

            known = self._encode_missing(tower, asked, lambda: encode(*args, **kwargs))
            parts = [known[images.keys[image]] for images, which in asked for image in which]
            if parts:
                return _in_form(self._form, torch.cat(parts) if len(parts) > 1 else parts[0])
            if self._form is None:  # no rank has met an image so far
                return encode(*args, **kwargs)
            return _in_form(self._form, given.new_zeros(1, _features_of(self._form).shape[-1]))

        with swapped(owner, name, answer):
            yield

    def _encode_missing(
        self, tower: Tower, wanted: Wanted, encode_blank: Callable[[], Encoded]
    ) -> dict[Key, Features]:
        """All known features, after as many tower calls as the rank with the most images to encode."""
        missing = [(images, new) for images, which in wanted if (new := self.cache.missing(images, which))]
        blanks = self._agree(len(missing)) - len(missing)  # first of all: every tower call is a collective
        fresh: dict[Key, Features] = {}
        for images, new in missing:
            fresh |= self.cache.encode(images, new, tower)
        for _ in range(blanks):
            with torch.no_grad():
                if wanted:
                    images, which = wanted[0]
                    tower(images, [min(which, key=images.sizes.__getitem__)])
                else:
                    self._note_form(encode_blank())
            self.cache.calls += 1
        return {**self.cache.features, **fresh}

    def _as_they_are(self, encode_given: Callable[[], Encoded]) -> Encoded:
        further = self._agree(1) - 1
        found = encode_given()
        self._note_form(found)
        for _ in range(further):
            with torch.no_grad():
                encode_given()
        self.cache.calls += 1 + further
        return found

    def _note_form(self, found: Encoded) -> Features:
        features = _features_of(found)
        # A view of no row would keep all of them in memory.
        self._form = _in_form(found, features.new_empty(0, *features.shape[1:]))
        return features


def _asked_for(wanted: Wanted, args: Sequence[Any], kwargs: ModelInputs) -> Wanted:
    """The media of one call: all, where images and videos are encoded together, else the one of its grid."""
    grids = [value for name, value in kwargs.items() if name.endswith("grid_thw")] or list(args[1:2])
    if len(wanted) < 2 or not grids or not isinstance(grids[0], Tensor):
        return wanted
    grid = grids[0].cpu()
    of_one = [
        one for one in wanted if any(torch.equal(own.cpu(), grid) for own in one[0].grid_of(one[1]).values())
    ]
    return of_one[:1] if of_one else wanted


def encoder_of(base: nn.Module, family: Family) -> tuple[nn.Module, str]:
    """Object and name of what turns pixels into features of the language model's width."""
    path, method = family.encoder
    return base.get_submodule(path), method


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    """True if two modules have the same parameters, each rank looking at its own part of them."""
    ours, theirs = (dict(module.named_parameters()) for module in (one, other))
    return ours.keys() == theirs.keys() and all(
        torch.equal(_local(ours[name]), _local(theirs[name]).to(_local(ours[name]))) for name in ours
    )


def share_weights(one: nn.Module, other: nn.Module) -> None:
    """Let ``other`` have the memory of the parameters of ``one``, which are equal and never change."""
    theirs = dict(other.named_parameters())
    for name, ours in one.named_parameters():
        if (theirs[name].dtype, theirs[name].device) == (ours.dtype, ours.device):
            theirs[name].data = ours.data


def _local(parameter: nn.Parameter) -> Shaped[Tensor, "..."]:
    """This rank's part of a parameter; of ZeRO-3's without the padding at its end, which is unset memory."""
    part = getattr(parameter, "ds_tensor", None)
    if part is None:
        return parameter.detach()
    start = torch.distributed.get_rank(parameter.ds_process_group) * part.numel()
    return part.detach().flatten()[: max(0, parameter.ds_numel - start)]


def _features_of(found: Encoded) -> Features:
    """Features of an encoder's answer, one tensor; those for deeper layers (deepstack) side by side."""
    if isinstance(found, Tensor):
        return found
    if type(found) is tuple:
        return _joined(found[0])
    deeper = map(_joined, getattr(found, _DEEPSTACK, None) or ())
    return torch.cat([_joined(found.pooler_output), *deeper], -1)


def _joined(features: Features | Sequence[Float[Tensor, " _ *width"]]) -> Features:
    """Some models answer with one tensor for each image, of as many features as the image has."""
    return features if isinstance(features, Tensor) else torch.cat(list(features))


def _in_form(found: Encoded, features: Features) -> Encoded:
    """``features`` in the form that the encoder answers in: a tensor, a tuple or an output class."""
    if isinstance(found, Tensor):
        return features
    if type(found) is tuple:  # with the indicators, transformers 4
        return (features, *found[1:])
    kept = {name: value for name, value in found.items() if name not in _LARGE}
    own, *deeper = features.chunk(1 + len(kept.get(_DEEPSTACK) or ()), -1)
    if deeper:
        kept[_DEEPSTACK] = [_like(one, part) for one, part in zip(kept[_DEEPSTACK], deeper, strict=True)]
    made = type(found)(**{name: value for name, value in kept.items() if name != "pooler_output"})
    made.pooler_output = _like(found.pooler_output, own)  # transformers 5.16: of Mistral 3 it is no field
    return made


def _like(found: Encoded, features: Features) -> Encoded:
    return features if isinstance(found, Tensor) else type(found)([features])
