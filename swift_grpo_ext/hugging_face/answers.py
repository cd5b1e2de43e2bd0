"""The output of an image encoder: a tensor, an output class of transformers 5, or a tuple or list of 4."""

from collections.abc import Sequence
from typing import Any, NamedTuple

DEEPSTACK = "deepstack_features"  # for deeper layers of the language model
# Not read after the encoder; the last is set anew.
_LEFT_OUT = ("last_hidden_state", "hidden_states", "attentions", "pooler_output")


class Answer(NamedTuple):
    """Features of images, in one tensor or in one for each image, and those for deeper layers."""

    own: Any
    deeper: Sequence[Any] = ()


def parts_of(found: Any) -> Answer:
    """The features of an encoder's answer, whatever its form."""
    if not isinstance(found, (tuple, list)):
        return Answer(getattr(found, "pooler_output", found), getattr(found, DEEPSTACK, None) or ())
    if _has_deeper(found):
        return Answer(*found)
    return Answer(found[0] if _has_indicators(found) else found)


def in_form(found: Any, own: Any, deeper: Sequence[Any]) -> Any:
    """Put other features, of any number of images, into the form of an answer."""
    if isinstance(found, (tuple, list)):
        if _has_deeper(found):
            return own, [*deeper]
        # One tensor of all images instead of one for each: callers concatenate them anyway.
        return (own, found[1]) if _has_indicators(found) else _like(found, own)
    if not hasattr(found, "pooler_output"):
        return own
    kept = {name: value for name, value in found.items() if name not in _LEFT_OUT}
    if deeper:
        kept[DEEPSTACK] = [_like(*pair) for pair in zip(kept[DEEPSTACK], deeper, strict=True)]
    made = type(found)(**kept)
    made.pooler_output = _like(found.pooler_output, own)  # not a field for Mistral 3 in transformers 5.16
    return made


def _has_deeper(found: Sequence[Any]) -> bool:
    """Qwen3-VL's tower in transformers 4: features, and a list of those for deeper layers."""
    return len(found) == 2 and isinstance(found[1], list)


def _has_indicators(found: Sequence[Any]) -> bool:
    """Ovis2 in transformers 4: features of tiles, and those of the indicators beside them."""
    return len(found) == 2 and found[0].ndim == found[1].ndim + 1


def _like(found: Any, features: Any) -> Any:
    """One tensor of all images, as the only item of a sequence where each image had its own."""
    return type(found)([features]) if isinstance(found, (tuple, list)) else features
