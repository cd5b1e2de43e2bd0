"""How the prompt that an engine reports differs from the one that the trainer trains on."""

from collections.abc import Callable, Collection, Sequence
from itertools import groupby, takewhile, zip_longest
from math import isqrt

Decode = Callable[[Sequence[int]], str]
_CONTEXT = 12
_SHOWN = 80
_ENDING = 8  # tokens of a generation prompt, at most
_USER_TURNS = ("user", "human", "inst]")


def prompt_difference(
    engine: Sequence[int], trainer: Sequence[int], placeholders: Collection[int], decode: Decode
) -> str:
    """The difference in words, with its likely cause; empty if there is none.

    The trainer's ids are of the whole row. Images that an engine reports as one token each are not compared.
    """
    if list(trainer[: len(engine)]) == list(engine):
        return ""
    seen, wanted = ([token for token in ids if token not in placeholders] for ids in (engine, trainer))
    if wanted[: len(seen)] == seen:
        return _media_difference(engine, trainer, placeholders)
    place = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(seen, wanted, strict=False))))
    return (
        f"token {place} is {_shown(decode, seen[place : place + 1])} in the engine and "
        f"{_shown(decode, wanted[place : place + 1])} in the trainer, after "
        f"{_shown(decode, seen[max(0, place - _CONTEXT) : place])}: {_likely(seen, wanted, place, decode)}"
    )


def _media_difference(engine: Sequence[int], trainer: Sequence[int], placeholders: Collection[int]) -> str:
    seen, wanted = (_runs(ids, placeholders) for ids in (engine, trainer))
    if seen == wanted or sum(seen) == len(wanted):
        return ""
    of_engine = sum(seen)
    of_trainer = sum(wanted)
    where = ""
    if of_engine == of_trainer:  # of several images
        pairs = list(zip_longest(seen, wanted, fillvalue=0))
        number = next(number for number, (engine, trainer) in enumerate(pairs) if engine != trainer)
        of_engine, of_trainer = pairs[number]
        where = f" for image {number + 1}"
    return (
        f"the engine has {of_engine} image tokens{where}, the trainer {of_trainer}: images are resized "
        "differently; give MAX_PIXELS, MIN_PIXELS (and the like) to both, the rollout server and the trainer"
    )


def grid_difference(sizes: Sequence[Sequence[int]], grids: Sequence[Sequence[int]]) -> str:
    """How images of as many patches are shaped differently, in words; empty if they are not, or nobody knows.

    An engine tells (width, height) in pixels, resized (then in whole square patches) or as the image was
    before; the trainer has (frames, rows, columns) of patches.
    """
    if len(sizes) != len(grids):
        return ""
    for number, ((width, height), (_, rows, columns)) in enumerate(zip(sizes, grids, strict=True), start=1):
        side = isqrt(width * height // (rows * columns))
        same_area = side * side * rows * columns == width * height
        if same_area and abs(width * rows - height * columns) > 0.1 * height * columns:
            return (
                f"image {number} is {width} x {height} pixels in the engine and {columns * side} x "
                f"{rows * side} in the trainer: it is turned (EXIF) or stretched on one side"
            )
    return ""


def _runs(ids: Sequence[int], placeholders: Collection[int]) -> list[int]:
    """Lengths of the runs of placeholders: about one for each image."""
    return [len(list(run)) for held, run in groupby(ids, key=placeholders.__contains__) if held]


def _likely(seen: Sequence[int], wanted: Sequence[int], place: int, decode: Decode) -> str:
    before = decode(seen[:place]).lower()
    if not any(name in before for name in _USER_TURNS):
        return "the system prompt differs (--system, or a default of the template on one side)"
    nexts = (decode(ids[place : place + _CONTEXT]) for ids in (seen, wanted))
    if place >= len(seen) - _ENDING or any("think" in text for text in nexts):
        return "the beginning of the answer differs (thinking prefix: --enable_thinking, --response_prefix)"
    return "the chat template differs (--template, --model_type), or the row was changed on the way"


def _shown(decode: Decode, ids: Sequence[int]) -> str:
    text = decode(ids) if ids else ""
    return repr("…" * (len(text) > _SHOWN) + text[-_SHOWN:]) if ids else "nothing"
