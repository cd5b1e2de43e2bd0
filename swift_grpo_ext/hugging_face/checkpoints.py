"""Checkpoints that another generation of transformers has saved."""

import json
from pathlib import Path
from typing import Any

from packaging.version import Version
from transformers import PretrainedConfig

from swift_grpo_ext.errors import EnvironmentMismatchError
from swift_grpo_ext.hugging_face.release import FIFTH, INSTALLED

CONFIG = "config.json"
TIED = "tie_word_embeddings"


def check_readable(folder: str | Path, installed: Version = INSTALLED) -> None:
    """Check that a checkpoint was not saved by a later generation of transformers than the installed one.

    Release 5 reads what 4 has saved. Release 4 reads neither rotation nor tokenizer of a checkpoint of 5, and
    of some models not even the weights, which it draws at random with a warning.

    Raises:
        EnvironmentMismatchError: A later generation has saved it.
    """
    _, saved_by = _read(folder)
    if saved_by is not None and saved_by.major > installed.major:
        raise EnvironmentMismatchError(
            f"transformers {saved_by} has saved the checkpoint, and transformers {installed} cannot read it",
            where=str(Path(folder) / CONFIG),
            fix=f'pip install "transformers>={saved_by.major}"',
        )


def tie_as_saved(config: PretrainedConfig, folder: str | Path) -> bool:
    """Tie an output layer to the embedding if transformers 4 saved it tied; True if the config untied it.

    Release 4 reads the language model's config, and may leave the field out of the outer config. Release 5
    reads the outer one, finds no weights for a separate output layer, and draws them at random. Until 5.12
    not every config has the field.
    """
    fields, saved_by = _read(folder)
    text, around = (getattr(holder, TIED, False) for holder in (config.get_text_config(), config))
    if not text or around or TIED in fields or saved_by is None or saved_by.major > 4:
        return False
    config.tie_word_embeddings = True
    return True


def save_processor(processor: Any, folder: str | Path) -> None:
    """Save a processor or a tokenizer so that the installed release reads all of it again.

    For images and audio transformers 4 writes the audio settings over those of images, in one file.
    """
    processor.save_pretrained(folder)
    if not FIFTH and hasattr(processor, "feature_extractor"):
        both = processor.feature_extractor.to_dict() | processor.image_processor.to_dict()
        Path(folder, "preprocessor_config.json").write_text(json.dumps(both), encoding="utf-8")


def _read(folder: str | Path) -> tuple[dict[str, Any], Version | None]:
    """The fields of a checkpoint's config, and the release that has saved it; None if nothing says so."""
    try:
        fields = json.loads((Path(folder) / CONFIG).read_text(encoding="utf-8"))
        return fields, Version(fields["transformers_version"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}, None
