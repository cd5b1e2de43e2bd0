"""Turns an original Ovis2 checkpoint (``AIDC-AI/Ovis2-*``, remote code) into transformers' own layout.

One shard at a time is in memory; code of the checkpoint is not run, pickled weights are not read.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_grpo_ext.errors import CheckpointError
from swift_grpo_ext.folders import made_folder
from swift_grpo_ext.models.families.ovis2 import ATOM, CHAT, INDICATORS, processor
from swift_grpo_ext.models.ovis2_keys import FIX_OF_CONFIG, configuration, convert, makes_no_model
from swift_grpo_ext.models.processors import build_processor

if TYPE_CHECKING:
    from transformers import Ovis2Config

INDEX = "model.safetensors.index.json"
MAX_TILES = 9  # the original's max_partition; transformers' default is 12
_CONTEXT = 32768
_SHOWN = 5
_AGAIN = "download the checkpoint again"
_TOGETHER = "weights, tokenizer and config.json must be of one AIDC-AI/Ovis2 checkpoint"


def convert_checkpoint(source: str | Path, target: str | Path) -> Path:
    """Write the original checkpoint in `source` (safetensors, tokenizer, config.json) to `target`, missing or
    empty, in transformers' layout.

    config.json is written last, so a conversion that was cut off does not pass for a checkpoint. One that
    failed takes back what it wrote.

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
    _refuse_used(target)
    config = configuration(original)
    shards = _shards(source)
    expected = _expected(config)
    made_folder(target, "TARGET")
    with _emptied_on_failure(target):
        _write_weights(shards, target, expected)
        _write_processor(source, target, config)
        if (source / "generation_config.json").is_file():
            shutil.copyfile(source / "generation_config.json", target / "generation_config.json")
        config.save_pretrained(target)
    return target


@contextmanager
def _emptied_on_failure(target: Path) -> Iterator[None]:
    """Take back what was written into a folder that was empty.

    Raises:
        CheckpointError: The folder cannot be written.
    """
    try:
        yield
    except BaseException as error:
        for written in target.glob("*"):
            written.unlink()
        if isinstance(error, OSError):
            problem = f"cannot be written: {error.strerror or error}"
            raise CheckpointError(problem, where=str(target), fix="another folder, or more room") from None
        raise


def _refuse_used(target: Path) -> None:
    if target.exists() and not target.is_dir():
        raise CheckpointError("this is a file; give a folder to write", where=str(target))
    if not target.exists() or not any(target.iterdir()):
        return
    cut_off = not (target / "config.json").exists() and any(target.glob("model-*-of-*.safetensors"))
    what = "the folder to write is not empty" + (": a conversion was cut off there" if cut_off else "")
    raise CheckpointError(what, where=str(target), fix="remove it, or give another")


def _write_weights(shards: list[Path], target: Path, expected: dict[str, tuple[int, ...]]) -> None:
    from safetensors.torch import save_file

    where: dict[str, str] = {}
    total = 0
    for number, shard in enumerate(shards, start=1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        tensors = {}
        for key, tensor in _converted(shard):
            if key == "lm_head.weight" and key not in expected:
                continue  # tied: the embedding serves
            _check(key, tuple(tensor.shape), expected, where)
            tensors[key] = tensor
            where[key] = name
            total += tensor.nbytes
        save_file(tensors, target / name, metadata={"format": "pt"})
    if missing := sorted(set(expected) - set(where)):
        first = ", ".join(missing[:_SHOWN])
        raise CheckpointError(f"{len(missing)} weights are missing, first {first}", fix=_AGAIN)
    index = {"metadata": {"total_size": total}, "weight_map": where}
    (target / INDEX).write_text(json.dumps(index, indent=2, sort_keys=True), encoding="utf-8")


def _converted(shard: Path) -> Iterator[tuple[str, Any]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(shard, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  (no mapping)
                yield from convert(name, file.get_tensor(name)).items()
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"shard cannot be read: {error}", where=str(shard), fix=_AGAIN) from None


def _check(
    key: str, shape: tuple[int, ...], expected: dict[str, tuple[int, ...]], seen: dict[str, str]
) -> None:
    if key not in expected:
        raise CheckpointError(f"{key} has no place in a model of this config", fix=_TOGETHER)
    if shape != expected[key]:
        raise CheckpointError(f"{key} has shape {shape}, by config.json it is {expected[key]}", fix=_TOGETHER)
    if key in seen:
        raise CheckpointError(f"{key} comes twice", fix=_TOGETHER)


def _expected(config: Ovis2Config) -> dict[str, tuple[int, ...]]:
    """Shapes of the weights of a model of this config, without those that are tied to others.

    Raises:
        CheckpointError: No model can be built from it.
    """
    import torch
    from transformers import Ovis2ForConditionalGeneration

    try:
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of sizes that are none
            model = Ovis2ForConditionalGeneration(config)
    except Exception as error:  # of many kinds, as in `configuration`
        raise CheckpointError(makes_no_model(error), fix=FIX_OF_CONFIG) from None
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if config.tie_word_embeddings:
        shapes.pop("lm_head.weight", None)
    return shapes


def _shards(source: Path) -> list[Path]:
    index = source / INDEX
    if index.is_file():
        found = _read_json(index).get("weight_map")
        if not isinstance(found, dict) or not all(isinstance(name, str) for name in found.values()):
            raise CheckpointError(f"{INDEX} has no weight_map of file names", where=str(source))
        names = sorted(set(found.values()))
    else:
        names = ["model.safetensors"]
    shards = [source / Path(name).name for name in names]
    missing = [shard.name for shard in shards if not shard.is_file()]
    if missing or not shards:
        what = f"weights are missing: {', '.join(missing) or 'the index names none'}"
        raise CheckpointError(what, where=str(source), fix=f"{_AGAIN}; pickled .bin files are not read")
    return shards


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
    fix = _AGAIN
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        problem = "is missing"
        fix = "give the folder of a downloaded AIDC-AI/Ovis2 checkpoint"
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    except ValueError as error:
        problem = f"is no JSON: {error}"
    else:
        if isinstance(found, dict):
            return found
        problem = "is no JSON object"
    raise CheckpointError(f"{path.name} {problem}", where=str(path.parent), fix=fix)
