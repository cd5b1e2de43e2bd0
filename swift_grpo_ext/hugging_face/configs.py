"""Configs and classes of models in the installed transformers."""

from collections.abc import Mapping
from typing import Any

import transformers
from transformers import PretrainedConfig

from swift_grpo_ext.errors import EnvironmentMismatchError
from swift_grpo_ext.hugging_face.release import FIFTH, INSTALLED

# Written beside the rotation in transformers 4, and inside it in 5.
_BESIDE_ROPE = ("rope_theta", "partial_rotary_factor")


def class_named(name: str) -> Any:
    """A class of transformers, such as ``Qwen3_5Config``::

        assert class_named("LlamaConfig").model_type == "llama"

    Raises:
        EnvironmentMismatchError: The installed release has no class of this name.
    """
    # The module imports its names lazily: hasattr would hide why one cannot be imported.
    if name not in transformers.__all__:
        raise EnvironmentMismatchError(
            f"transformers {INSTALLED} has no {name}",
            where="the model asks for it",
            fix="pip install -U transformers, within the range that `swift-grpo-ext env` prints",
        )
    return getattr(transformers, name)


def config_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a language model's config, written as transformers 5 has them, for the installed release.

    ``rope_parameters`` of 5 is ``rope_scaling`` of 4, beside which two of its fields stand.
    """
    others = dict(fields)
    if FIFTH or "rope_parameters" not in others:
        return others
    rope = dict(others.pop("rope_parameters"))
    beside = {name: rope.pop(name) for name in _BESIDE_ROPE if name in rope}
    return {**others, **beside, "rope_scaling": rope}


def architectures_of(config: PretrainedConfig) -> list[str]:
    """Names of the model's classes that a config states.

    Configs of Qwen2-VL and Qwen2.5-VL in transformers 4 answer for their language model, which has none.
    """
    return list(vars(config).get("architectures") or config.architectures or [])
