"""Axes of a run, and configurations in which every two values of two axes meet: a covering array."""

import random
from itertools import combinations, product

from allpairspy import AllPairs
from pairs.cases import cut
from sweep.table import LORA, LOSSES, USERS_CUT, Configuration

from swift_grpo_ext.testing.families import TINY
from swift_grpo_ext.version import __version__

# Those whose collator cannot put images of several sizes, or rows with and without, into one batch: ms-swift
# itself trains them with the completions of one prompt only.
ALONE = ("llava_onevision", "mistral3")
ONE_IMAGE = ("llava_onevision",)  # its collator has no room for several
OFF = "callbacks,trainer.self_check"

AXES = {
    "family": tuple(TINY),
    "images": ("text", "image", "images 0-3", "sizes", "one row without"),
    "beta": (0.04, 0),
    "cut": ("1 x 8", "2 x 4", "4 x 2", "8 x 1"),
    "watching": (True, False),
    "tuner": ("full", "lora"),
    "loss": tuple(LOSSES),
}


def can_be(values):
    """Whether a configuration, or the first axes of one, is one that ms-swift itself can train."""
    row = dict(zip(AXES, values, strict=False))
    family, images = row["family"], row.get("images")
    if images is None:
        return True
    if not TINY[family].vision:
        return images == "text"
    if family in ONE_IMAGE and images == "images 0-3":
        return False
    alone = family in ALONE and images in ("images 0-3", "sizes", "one row without")
    return not (alone and row.get("cut") == "8 x 1")


def configuration(row):
    """What the two runs of a row are told."""
    size, _, accumulation = row["cut"].partition(" x ")
    options = {
        **cut(int(size), int(accumulation)),
        **LOSSES[row["loss"]],
        **({**LORA, "lora_dropout": 0} if row["tuner"] == "lora" else {}),
        "beta": row["beta"],
        "log_completions": row["watching"],
    }
    variables = {**USERS_CUT, **({} if row["watching"] else {"SWIFT_GRPO_EXT_DISABLE": OFF})}
    return Configuration(options, row["family"], row["images"], variables=variables)


def missing(rows):
    """Pairs of values, as two items of a row, that some trainable configuration has and none of the rows."""
    met = {pair for row in rows for pair in combinations(row.items(), 2)}
    for one, other in combinations(AXES, 2):
        for pair in product(product([one], AXES[one]), product([other], AXES[other])):
            if pair not in met and any(True for _ in completed(dict(pair))):
                yield dict(pair)


def completed(chosen):
    """Configurations with the chosen values that can be trained, which the others of three axes decide."""
    deciding = ("family", "images", "cut")
    values = [
        [chosen[name]] if name in chosen else AXES[name] if name in deciding else AXES[name][:1]
        for name in AXES
    ]
    return (dict(zip(AXES, row, strict=True)) for row in product(*values) if can_be(row))


def covering(seed=__version__):
    """Configurations by name, from two arrays; each release orders the values anew, and so draws others."""
    generator = random.Random(seed)
    rows = []
    for _ in range(2):
        axes = [generator.sample(values, len(values)) for values in AXES.values()]
        rows += [dict(zip(AXES, values, strict=True)) for values in AllPairs(axes, filter_func=can_be)]
    while pair := next(missing(rows), None):  # the filter makes the library leave some out
        rows.append(generator.choice(list(completed(pair))))
    return {name_of(row): configuration(row) for row in rows}


def name_of(row):
    """All values of a row."""
    return ", ".join(f"{name} {value}" for name, value in row.items())


def row_of(name):
    """The values of a name, by axis, as text."""
    return dict(zip(AXES, (part.split(" ", 1)[1] for part in name.split(", ")), strict=True))


def representative(names, number):
    """So many of the configurations, by name: each time the one in which most pairs of values meet anew."""
    left = {name: set(combinations(row_of(name).items(), 2)) for name in names}
    chosen = []
    for _ in range(number):
        best = max(left, key=lambda name: len(left[name]))
        met = left.pop(best)
        chosen.append(best)
        left = {name: pairs - met for name, pairs in left.items()}
    return chosen
