"""How the prompt that an engine reports differs from the one that the trainer trains on."""

from collections.abc import Callable, Collection, Sequence
from itertools import groupby, takewhile, zip_longest
from math import isqrt
from zlib import crc32

from PIL import Image

from swift_grpo_ext.trainer.samples import Claim

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


def first_difference(engine: Sequence[int], trainer: Sequence[int], placeholders: Collection[int]) -> int:
    """The place in the engine's prompt where the two begin to differ, by words or else by images."""
    words = iter([token for token in trainer if token not in placeholders])
    for place, token in enumerate(engine):
        if token not in placeholders and token != next(words, None):
            return place
    return next((n for n, pair in enumerate(zip(engine, trainer, strict=False)) if pair[0] != pair[1]), 0)


def _media_difference(engine: Sequence[int], trainer: Sequence[int], placeholders: Collection[int]) -> str:
    seen, wanted = (_runs(ids, placeholders) for ids in (engine, trainer))
    if seen == wanted or sum(seen) == len(wanted):
        return ""
    pairs = list(zip_longest(seen, wanted, fillvalue=0))
    number, (of_engine, of_trainer) = next((n, pair) for n, pair in enumerate(pairs, 1) if pair[0] != pair[1])
    if all(pair[0] in (1, pair[1]) for pair in pairs):
        return (
            f"image {number} is one token in the engine and {of_trainer} in the trainer: the engine goes on "
            "with ids in which some images are expanded and others not; give it messages and images of all "
            "turns, or expanded ids alone"
        )
    where = f" for image {number}"
    if sum(seen) != sum(wanted):
        of_engine = sum(seen)
        of_trainer = sum(wanted)
        where = ""
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


def lost_image(turns: Sequence[Sequence[Sequence[int]] | None], given: int) -> str:
    """Which image one side alone has, in words; empty if none, or nobody knows.

    The engine tells of each turn the sizes of all images so far (None: it does not); the trainer has so many.
    """
    sizes = turns[-1]
    if sizes is None or len(sizes) == given:
        return ""
    if len(sizes) < given:
        return (
            f"image {len(sizes) + 1} of the row was never seen by the engine, which had {len(sizes)} in turn "
            f"{len(turns)}: a scheduler adds images to infer_request.images before the turn that reads them"
        )
    turn = next(turn for turn, seen in enumerate(turns, 1) if seen is not None and len(seen) > given)
    width, height = sizes[given]
    return (
        f"in turn {turn} the engine saw image {given + 1} ({width} x {height} pixels), which the trainer "
        "does not have: a scheduler's step returns all images as {'rollout_infos': {'images': [...]}}"
    )


def marks_of(images: Sequence[object] | None) -> list[int]:
    """Tells each picture in memory from the same one after a change; 0 for what lies in a file."""
    return [crc32(image.tobytes()) if isinstance(image, Image.Image) else 0 for image in images or ()]


def changed_image(claims: Sequence[Claim]) -> str:
    """Which image was another one when a later turn saw it, in words; empty if none, or nobody knows."""
    for turn, claim in enumerate(claims, 1):
        for number, marks in enumerate(zip(claim.pictures, claims[-1].pictures, strict=False), 1):
            if all(marks) and len(set(marks)) > 1:
                return (
                    f"image {number}, as turn {turn} saw it, was changed in memory afterwards and is trained "
                    "on as it became: a scheduler or an environment draws on a copy (image.copy())"
                )
    return ""


def _runs(ids: Sequence[int], placeholders: Collection[int]) -> list[int]:
    """Lengths of the runs of placeholders: about one for each image."""
    return [len(list(run)) for held, run in groupby(ids, key=placeholders.__contains__) if held]


def _likely(seen: Sequence[int], wanted: Sequence[int], place: int, decode: Decode) -> str:
    before = decode(seen[:place]).lower()
    if not any(name in before for name in _USER_TURNS):
        return "the system prompt differs (--system, or a default of the template on one side)"
    nexts = [decode(ids[place : place + _CONTEXT]) for ids in (seen, wanted)]
    if place >= len(seen) - _ENDING or any("think" in text for text in nexts):
        return "the beginning of the answer differs (thinking prefix: --enable_thinking, --response_prefix)"
    if any("seconds>" in text for text in nexts):
        return (
            "the times of a video's frames differ (FPS, FPS_MAX_FRAMES and the like: give them to both, the "
            "rollout server and the trainer; or chat_template_kwargs of the row do not reach the engine)"
        )
    return "the chat template differs (--template, --model_type), or the row was changed on the way"


def _shown(decode: Decode, ids: Sequence[int]) -> str:
    text = decode(ids) if ids else ""
    return repr("…" * (len(text) > _SHOWN) + text[-_SHOWN:]) if ids else "nothing"
