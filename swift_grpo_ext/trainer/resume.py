"""A resumed run goes on from its checkpoint's weights, whatever names they are stored under."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import safe_open
from swift.utils import get_logger
from transformers import PreTrainedModel

from swift_grpo_ext.errors import RefusedError

logger = get_logger()


class ResumedWeights:
    """Mixin of the host's trainer for ``--resume_from_checkpoint`` with all parameters trained.

    transformers 5 stores vision-language models under the names of older releases (``model.layers.0``) and
    translates them when a model is loaded, but its Trainer reads the stored names as they are and passes over
    those that the model does not have (``model.language_model.layers.0``). All weights of a Qwen2.5-VL stay
    those of the start, with the optimizer's state and the step of the checkpoint.
    """

    def _load_from_checkpoint(self: Any, resume_from_checkpoint: str, model: Any = None) -> None:
        target = self.model if model is None else model
        plain = not self.is_deepspeed_enabled and not self.is_fsdp_enabled
        stored = stored_names(Path(resume_from_checkpoint))
        if not isinstance(target, PreTrainedModel) or not plain or not stored:
            super()._load_from_checkpoint(resume_from_checkpoint, model)  # type: ignore[misc]
            return
        if {name for name, _ in target.named_parameters()} <= stored:
            super()._load_from_checkpoint(resume_from_checkpoint, model)  # type: ignore[misc]
            return
        load_renamed(target, resume_from_checkpoint)
        logger.info("swift-grpo-ext: the checkpoint's names were translated to those of the model.")


def stored_names(folder: Path) -> set[str]:
    """Names of the tensors in a checkpoint's safetensors files; empty if it has none."""
    index, single = folder / "model.safetensors.index.json", folder / "model.safetensors"
    if index.is_file():
        return set(json.loads(index.read_text(encoding="utf-8"))["weight_map"])
    if single.is_file():
        with safe_open(single, framework="pt") as file:
            return set(file.keys())
    return set()


def load_renamed(model: PreTrainedModel, folder: str) -> None:
    """Load a checkpoint as its class does it, names translated, and copy it into a model.

    Raises:
        RefusedError: Parameters of the model are not in the checkpoint.
    """
    fresh, report = type(model).from_pretrained(folder, dtype=model.dtype, output_loading_info=True)
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])
        raise RefusedError(
            f"{len(missing)} parameters are not in the checkpoint, {missing[0]} first",
            where=folder,
            mend="resume from a complete checkpoint of this model",
        )
    model.load_state_dict(fresh.state_dict())
