"""How often the vision tower runs in a forward: never for text alone, unless ranks wait for each other in it.

ms-swift runs the tower over a made-up image where a micro-batch has no picture, so that ranks that gather its
parameters, or wait for its gradients, keep step. Models of other families skip it there, and ranks with an
image hang. Here the made-up image's features are a zero, and ranks agree before the forward on how often
each of them runs the tower: one with fewer images runs it over the smallest image, before the language model.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from swift_grpo_ext.group.media import Family, SeeingModel
from swift_grpo_ext.group.vision import Features, Images, outside_of_language
from swift_grpo_ext.hugging_face.answers import DEEPSTACK, parts_of
from swift_grpo_ext.hugging_face.tower_plans import planned_in_main_memory
from swift_grpo_ext.swap import swapped

# What an encoder answers, in one of the forms that `parts_of` knows.
Encoded: TypeAlias = Any
Encode = Callable[..., Encoded]
Wanted = Sequence[tuple[Images, Sequence[int]]]


class TowerCalls:
    """The tower in passes that do not keep its features, such as those in which it trains."""

    def __init__(
        self, family: Family, blank: Callable[[], Images], agree: Callable[[int], int] | None, always: bool
    ) -> None:
        self.family = family
        self._blank = blank
        self._agree = agree  # on the most calls of any rank, where all of them have to make as many
        self._always = always  # the tower trains, and ranks wait for the gradients of each other
        self._seen = False  # it has had a picture since the last step, on this rank

    @contextmanager
    def standing_in(self, base: SeeingModel, wanted: Wanted | None) -> Iterator[None]:
        """While this is open, one forward is made over ``wanted`` images; None: over those of one call."""
        with self.over(base, 1 if wanted is None else len(wanted)):
            yield

    @contextmanager
    def over(self, base: SeeingModel, media: int) -> Iterator[None]:
        """While this is open, one forward is made, over so many media (images, videos)."""
        with_gradients = self._always and torch.is_grad_enabled()
        self._seen |= media > 0 and torch.is_grad_enabled()
        least = int(with_gradients)
        due = self._agree(max(media, least)) if self._agree else least
        calls = 0  # one for both media, where a family encodes them together

        def answer(encode: Encode, *args: Any, **kwargs: Any) -> Encoded:
            nonlocal calls
            if not due and not media:
                return no_features(args[0] if args else kwargs["pixel_values"])
            calls += 1  # of text alone over the made-up image: the modules in ms-swift's own order
            return encode(*args, **kwargs)

        def extra() -> int:
            return due - calls

        with in_step(base, self.family, answer, extra, 0, self._blank, with_gradients):
            yield

    def drop_idle_gradients(self, base: PreTrainedModel, agree: Callable[[int], int]) -> None:
        """Drop zero gradients, at the end of a step, of a tower that saw no picture on any rank.

        With them AdamW would decay the tower's weights, and move them by old momentum.
        """
        idle = not agree(int(self._seen))
        self._seen = False
        for _, parameter in outside_of_language(base) if idle else ():
            if parameter.grad is not None and not bool(parameter.grad.any()):
                parameter.grad = None


@contextmanager
def in_step(
    base: Any,
    family: Family,
    answer: Callable[..., Encoded],
    extra: Callable[[], int],
    inside: int,
    blank: Callable[[], Images],
    with_gradients: bool = False,
) -> Iterator[None]:
    """While this is open, the encoder answers by ``answer``, which gets the encoder itself, too.

    ``base`` is the model, or where nothing is ``extra`` any module with the encoder in it.

    It runs ``extra`` times more, over the blank image: up to ``inside`` times in its first call, and then
    before the language model, where DeepSpeed's hook has not yet gathered for that. So the order of modules
    is that of ranks with images: ZeRO-3 gathers ahead by the order of the pass before. With gradients, those
    features are added to the language model's input times zero, for the same order in the backward pass.
    """
    owner, name = encoder_of(base, family)
    encode = planned_in_main_memory(owner, getattr(owner, name))
    of_tower = name == "forward"
    unused: list[Features] = []
    done = 0

    def run(call: Encode, most: int) -> None:
        nonlocal done
        while done < most:
            done += 1
            with torch.set_grad_enabled(with_gradients):
                unused.append(encode_blank(base, call, blank(), of_tower))

    def answered(*args: Any, **kwargs: Any) -> Encoded:
        encoded = answer(encode, *args, **kwargs)
        run(encode, min(inside, extra()))
        return encoded

    def before_decoder(
        module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        with swapped(owner, name, encode):
            run(owner if of_tower else encode, extra())  # through its hooks, which gather
        for features in filter(lambda features: features.requires_grad, unused):
            embedded: Float[Tensor, "batch seq hidden"] = kwargs["inputs_embeds"]
            kwargs["inputs_embeds"] = embedded + 0.0 * features.mean().to(embedded.device, embedded.dtype)
        unused.clear()
        return args, kwargs

    with swapped(owner, name, answered), ExitStack() as stack:
        if extra() > 0:
            decoder = base.get_decoder()
            hook = decoder.register_forward_pre_hook(before_decoder, with_kwargs=True, prepend=True)
            stack.callback(hook.remove)
        yield


def encoder_of(base: SeeingModel | nn.Module, family: Family) -> tuple[nn.Module, str]:
    """Object and name of what turns pixels into features of the language model's width."""
    path, method = family.encoder
    return base.get_submodule(path), method


def no_features(pixels: Float[Tensor, "..."]) -> SimpleNamespace:
    """Stand in for a made-up image's features: a zero, which callers add to embedded text, times zero.

    ms-swift's templates, and ours of Ovis2, take from it what they know of the encoder's answer.
    """
    zero = pixels.new_zeros(1, 1)
    fields = ("pooler_output", "last_hidden_state", "visual_indicator_features")
    return SimpleNamespace(**dict.fromkeys(fields, zero), **{DEEPSTACK: []})


def encode_blank(base: SeeingModel, encode: Encode, blank: Images, of_tower: bool) -> Features:
    """Features of the blank image, by an encoder of its model."""
    pixels = blank.pixels_of([0]).to(base.device, base.dtype)
    return features_of(encode(pixels, **grids_of(blank, [0], pixels.device, of_tower)))


def grids_of(
    images: Images, which: Sequence[int], device: torch.device, of_tower: bool
) -> dict[str, Int[Tensor, "..."]]:
    """The grid of some images as an encoder takes it: a tower calls that of any medium by one name."""
    grids = images.grid_of(which).items()
    return {"grid_thw" if of_tower else name: grid.to(device, non_blocking=True) for name, grid in grids}


def features_of(found: Encoded) -> Features:
    """Features of an encoder's answer, one tensor; those for deeper layers (deepstack) side by side."""
    own, deeper = parts_of(found)
    return torch.cat([_joined(own), *map(_joined, deeper)], -1) if deeper else _joined(own)


def _joined(features: Features | Sequence[Float[Tensor, " _ *width"]]) -> Features:
    """Some models answer with one tensor for each image, of as many features as the image has."""
    return features if isinstance(features, Tensor) else torch.cat(list(features))
