"""Image features for the passes of a generation batch, from one run of the tower over each distinct image.

A stand-in takes the place of what encodes pixels: the tower, where merging patches to tokens is part of it,
else ``get_image_features``. It answers from the cache, and encodes what is missing there with the original:
so ZeRO-3 and FSDP gather the tower's parameters as always.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Bool, Shaped
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from swift_grpo_ext.group.media import Family, ModelInputs
from swift_grpo_ext.group.tower_calls import (
    Encode,
    Encoded,
    Wanted,
    features_of,
    grids_of,
    in_step,
    no_features,
)
from swift_grpo_ext.group.vision import FeatureCache, Features, Images, Key, Tower
from swift_grpo_ext.hugging_face.answers import in_form, parts_of

VISION_BYTES = 2**31  # most of the image features that are kept for one generation batch
_WRAPPER = "_checkpoint_wrapped_module."


class VisionOnce:
    """Encodes the images of training's, or of evaluation's, generation batches; keeps ``limit`` bytes.

    ``agree`` gives the most calls of the tower that any rank must make; ``blank`` is the image of those that
    a rank makes for the others alone. Where ranks do not wait in the tower, ``agree`` gives a rank its own.
    """

    def __init__(
        self, family: Family, limit: int, agree: Callable[[int], int], blank: Callable[[], Images]
    ) -> None:
        self.family = family
        self.cache = FeatureCache(limit)
        self._agree = agree
        self._blank = blank
        self._form: Encoded | None = None  # what the encoder answered last, emptied

    @contextmanager
    def standing_in(self, base: Any, wanted: Wanted | None) -> Iterator[None]:
        """While this is open, the model gets features of the ``wanted`` images for the pixels it encodes.

        They stand in the order of the inputs, for each medium. If empty, a zero stands for the made-up image
        of the template. None if they cannot be told apart: the tower runs over them as they are.
        """
        of_tower = self.family.encoder[1] == "forward"
        own = 1 if wanted is None else sum(bool(self.cache.missing(*medium)) for medium in wanted)
        extra = self._agree(own) - own  # first of all: every tower call is a collective

        def answer(encode: Encode, *args: Any, **kwargs: Any) -> Encoded:
            pixel_values = args[0] if args else kwargs["pixel_values"]
            if wanted is None:
                return encode(*args, **kwargs)
            if not wanted:
                return no_features(pixel_values)
            asked = _asked_for(wanted, args, kwargs)
            options = {key: option for key, option in kwargs.items() if not isinstance(option, Tensor)}

            def tower(images: Images, which: Sequence[int]) -> Features:
                pixels = images.pixels_of(which).to(pixel_values.device, pixel_values.dtype)
                grids = grids_of(images, which, pixel_values.device, of_tower)
                encoded = encode(pixels, **{**options, **grids})
                features = features_of(encoded)
                # A view of no row would keep all of them in memory.
                self._form = _in_form(encoded, features.new_empty(0, *features.shape[1:]))
                return features

            known = self._encode_missing(tower, asked)
            parts = [known[images.keys[image]] for images, which in asked for image in which]
            return _in_form(self._form, torch.cat(parts))

        with in_step(base, self.family, answer, lambda: extra, extra, self._blank):
            yield

    def _encode_missing(self, tower: Tower, wanted: Wanted) -> dict[Key, Features]:
        """All known features, once those that are missing have been encoded."""
        fresh: dict[Key, Features] = {}
        for images, which in wanted:
            if new := self.cache.missing(images, which):
                fresh |= self.cache.encode(images, new, tower)
        return {**self.cache.features, **fresh}


def _asked_for(wanted: Wanted, args: Sequence[Any], kwargs: ModelInputs) -> Wanted:
    """The media of one call: all, where images and videos are encoded together, else the one of its grid."""
    grids = [value for name, value in kwargs.items() if name.endswith("grid_thw")] or list(args[1:2])
    if len(wanted) < 2 or not grids or not isinstance(grids[0], Tensor):
        return wanted
    grid = grids[0].cpu()
    for images, which in wanted:
        if any(torch.equal(own, grid) for own in images.grid_of(which).values()):
            return [(images, which)]
    return wanted


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    """True if two modules have the same parameters. Every rank must come here.

    A rank looks at its own part of what ZeRO-3 divides, and at the whole of what FSDP2 divides: of another
    model that is divided otherwise, or whole.
    """
    ours, theirs = map(_parameters, (one, other))
    if ours.keys() != theirs.keys():
        return False
    # Compared where they lie, all of them, and read once: gathering is a collective, and a look at each would
    # make the host wait hundreds of times.
    equal = [_equal(ours[name], theirs[name]) for name in ours]
    return bool(torch.stack([flag.to(equal[0].device) for flag in equal]).all())


def share_weights(one: nn.Module, other: nn.Module) -> None:
    """Let ``other`` have the memory of the parameters of ``one``, which are equal and never change."""
    theirs = dict(other.named_parameters())
    for name, ours in one.named_parameters():
        if (theirs[name].dtype, theirs[name].device) == (ours.dtype, ours.device):
            theirs[name].data = ours.data


def _parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """By name, without that of the wrapper in which FSDP2 puts each layer of a model that trains."""
    return {name.replace(_WRAPPER, ""): parameter for name, parameter in module.named_parameters()}


def _equal(one: nn.Parameter, other: nn.Parameter) -> Bool[Tensor, ""]:
    own, their = _comparable(one), _comparable(other)
    same = own.shape == their.shape
    return (own == their.to(own)).all() if same else torch.tensor(False, device=own.device)


def _comparable(parameter: nn.Parameter) -> Shaped[Tensor, "..."]:
    """The whole of a parameter; under ZeRO-3 this rank's part, without the unset memory at its end."""
    if isinstance(parameter, DTensor):
        return parameter.detach().full_tensor()
    part = getattr(parameter, "ds_tensor", None)
    if part is None:
        return parameter.detach()
    start = torch.distributed.get_rank(parameter.ds_process_group) * part.numel()
    return part.detach().flatten()[: max(0, parameter.ds_numel - start)]


def _in_form(found: Encoded, features: Features) -> Encoded:
    """``features`` in the form that the encoder answers in."""
    own, *deeper = features.chunk(1 + len(parts_of(found).deeper), -1)
    return in_form(found, own, deeper)
