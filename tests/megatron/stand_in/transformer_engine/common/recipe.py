"""Stands in for the FP8 and FP4 recipes: their names, which Megatron imports; none can be made."""

from enum import Enum


class Format(Enum):
    E4M3 = "e4m3"
    HYBRID = "hybrid"


class Recipe:
    def __init__(self, *args, **kwargs):
        raise RuntimeError("FP8 and FP4 recipes need the real transformer_engine")


class DelayedScaling(Recipe):
    pass


class Float8CurrentScaling(Recipe):
    pass


class Float8BlockScaling(Recipe):
    pass


class MXFP8BlockScaling(Recipe):
    pass


class NVFP4BlockScaling(Recipe):
    pass


class CustomRecipe(Recipe):
    pass
