"""Turns an original Ovis2 checkpoint (``AIDC-AI/Ovis2-*``, remote code) into transformers' own layout.

Weights are mapped from their files, and written shard by shard; code of the checkpoint is not run, pickled
weights are not read.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_grpo_ext.errors import CheckpointError
from swift_grpo_ext.folders import made_folder
from swift_grpo_ext.models.families.ovis2 import ATOM, CHAT, INDICATORS, processor
from swift_grpo_ext.models.ovis2_keys import convert, empty_model
from swift_grpo_ext.models.processors import build_processor

if TYPE_CHECKING:
    from transformers import Ovis2Config

INDEX = "model.safetensors.index.json"
EMBEDDING = "model.language_model.embed_tokens.weight"
HEAD = "lm_head.weight"
MAX_TILES = 9  # the original's max_partition; transformers' default is 12
_CONTEXT = 32768
_SHOWN = 240  # letters of what torch finds wrong
_AGAIN = "download the checkpoint again"
_TOGETHER = "weights, tokenizer and config.json must be of one AIDC-AI/Ovis2 checkpoint"


def convert_checkpoint(source: str | Path, target: str | Path) -> Path:
    """Write the original checkpoint in `source` (safetensors, tokenizer, config.json) to `target`, missing or
    empty, in transformers' layout.

    It is written to ``TARGET.partial``, which becomes `target` when it is whole.

    Raises:
        CheckpointError: A part is missing, unknown or of another shape; the target is not empty or cannot
            be written.
    """
    source = Path(source)
    target = Path(target)
    original = _read_json(source / "config.json")
    if "Ovis2ForConditionalGeneration" in (original.get("architectures") or ()):
        what = "this checkpoint is in transformers' layout already"
        raise CheckpointError(what, where=str(source), fix="use it as it is")
    if target.is_file() or (target.exists() and any(target.iterdir())):
        what = "this is a file" if target.is_file() else "the folder to write is not empty"
        raise CheckpointError(what, where=str(target), fix="remove it, or give another")
    model = empty_model(original)
    shards = _shards(source)
    partial = made_folder(target.with_name(f"{target.name}.partial"), "TARGET")
    try:
        _write_processor(source, partial, model.config)
        _write_model(shards, partial, model)
        if (source / "generation_config.json").is_file():
            shutil.copyfile(source / "generation_config.json", partial / "generation_config.json")
        partial.replace(target)
    except OSError as error:
        problem = f"cannot be written: {error.strerror or error}"
        raise CheckpointError(problem, where=str(target), fix="another folder, or more room") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def _write_model(shards: list[Path], target: Path, model: Any) -> None:
    """Write the weights, with their config.

    Raises:
        CheckpointError: Some are missing, unknown or of another shape.
    """
    weights = {name: tensor for shard in shards for name, tensor in _converted(shard)}
    if model.config.tie_word_embeddings and EMBEDDING in weights:
        weights[HEAD] = weights[EMBEDDING]  # whatever the file has
    try:
        model.load_state_dict(weights, assign=True)
    except RuntimeError as error:
        _, _, differs = " ".join(str(error).split()).partition(": ")
        what = f"weights are not those of config.json: {differs[:_SHOWN]}"
        raise CheckpointError(what, fix=f"{_TOGETHER}; {_AGAIN}") from None
    model.tie_weights()
    model.save_pretrained(target)


def _converted(shard: Path) -> Iterator[tuple[str, Any]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(shard, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  (no mapping)
                yield from convert(name, file.get_tensor(name)).items()
    except (SafetensorError, OSError, IndexError, RuntimeError) as error:
        fix = f"{_AGAIN}; pickled .bin files are not read"
        raise CheckpointError(f"shard cannot be read: {error}", where=str(shard), fix=fix) from None


def _shards(source: Path) -> list[Path]:
    weight_map: Any = {"": "model.safetensors"}
    if (source / INDEX).is_file():
        weight_map = _read_json(source / INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise CheckpointError(f"{INDEX} has no weight_map of file names", where=str(source))
    return [source / Path(name).name for name in sorted(set(weight_map.values()))]


def _write_processor(source: Path, target: Path, config: Ovis2Config) -> None:
    """Write tokenizer, image processor and chat template, and put the tokens' ids into the config.

    Raises:
        CheckpointError: The tokenizer is missing, cannot be loaded, or needs more rows of the embedding.
    """
    from transformers import Qwen2TokenizerFast

    if not any((source / name).is_file() for name in ("tokenizer.json", "vocab.json")):
        # transformers would make an empty tokenizer of such a folder, without a word.
        what = "the tokenizer is missing: no tokenizer.json, no vocab.json"
        raise CheckpointError(what, where=str(source), fix=_AGAIN)
    try:
        tokenizer = Qwen2TokenizerFast.from_pretrained(str(source))
    except Exception as error:  # what the tokenizers package raises for a file of another form is open
        what = "the tokenizer cannot be loaded: " + " ".join(str(error).split())[:160]
        raise CheckpointError(what, where=str(source), fix=_AGAIN) from None
    tokenizer.add_special_tokens({"additional_special_tokens": [ATOM, *INDICATORS]})
    tokenizer.model_max_length = _CONTEXT
    atom, *indicators = tokenizer.convert_tokens_to_ids([ATOM, *INDICATORS])
    config.update({"image_token_id": atom, "visual_indicator_token_ids": indicators})
    if max(indicators) >= config.vocab_size:
        what = f"the embedding has {config.vocab_size} rows, image tokens need {max(indicators) + 1}"
        raise CheckpointError(what, fix=_TOGETHER)
    made = build_processor(tokenizer, "Ovis2", CHAT, **processor(config, 0, MAX_TILES))
    made.save_pretrained(target)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return {**json.loads(path.read_text(encoding="utf-8"))}
    except (OSError, ValueError, TypeError) as error:
        fix = "give the folder of a downloaded AIDC-AI/Ovis2 checkpoint"
        raise CheckpointError(
            f"{path.name} cannot be read as a JSON object: {error}", where=str(path), fix=fix
        ) from None
