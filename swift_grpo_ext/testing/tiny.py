"""Random-weight checkpoints of many families, of 0.1 to 0.4 million parameters, to train on a CPU."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from swift_grpo_ext.models.processors import build_processor
from swift_grpo_ext.testing.families import TINY

# Text that the merges are learned from: words of short vision tasks, in both of the host's languages.
CORPUS = (
    "You are a helpful assistant.",
    "Which digit is written in this image? Answer with one digit.",
    "What is in the picture? Describe the image in one short sentence.",
    "Locate the object and give its box as four numbers.",
    "Think first, then answer: <think>the digit looks round</think><answer>8</answer>",
    "The answer is zero one two three four five six seven eight nine.",
    "system user assistant image picture question answer digit number count box point yes no",
    "图中写的是哪个数字？请回答一个数字。",
    "请描述这张图片，先思考，再给出答案。",
)

# The published order of Qwen2.5's special tokens, from id 151643 on.
QWEN2_5_SPECIAL_TOKENS = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    *(f"<|{what}_{end}|>" for what in ("object_ref", "box", "quad", "vision") for end in ("start", "end")),
    *(f"<|{what}_pad|>" for what in ("vision", "image", "video")),
    *("<tool_call>", "</tool_call>"),
    *(f"<|fim_{part}|>" for part in ("prefix", "middle", "suffix", "pad")),
    *("<|repo_name|>", "<|file_sep|>"),
)
STOCK_SPECIAL_START = 151643
STOCK_VOCABULARY_SIZE = 151936

# Qwen's pre-tokenizer: single digits, words with one leading character, runs of punctuation, white space.
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_MERGES = 160


def tiny_checkpoint(
    family: str,
    path: str | Path,
    *,
    seed: int = 0,
    dtype: str = "float32",
    stock_vocabulary: bool = False,
    vision: Mapping[str, Any] | None = None,
    top: Mapping[str, Any] | None = None,
    max_pixels: int | None = None,
    **text: Any,
) -> Path:
    """Write a complete checkpoint of a random model; sizes have the names that transformers gives them::

        testing.tiny_checkpoint("qwen3_vl", "tiny", num_hidden_layers=4, vision={"depth": 3})

    Args:
        family: ``model_type`` of a row of docs/families.md, such as ``qwen2_5_vl`` or ``qwen3_5``.
        path: Folder to write; made if missing.
        seed: Of the weights (of torch's ``dtype``): the same bytes for the same seed and sizes.
        stock_vocabulary: Give the special tokens their published ids (``<|image_pad|>`` 151655, ...) and the
            embedding 151936 rows, which ms-swift's own templates may need and ours do not.
        vision: Fields of the tower's config that are other than tiny.
        top: Other fields of the config.
        max_pixels: Most pixels of a resized image, where the processor resizes.
        **text: Fields of the language model's config. ``initializer_range`` (0.02) is the tower's, too.
    """
    from swift_grpo_ext.hugging_face.checkpoints import save_processor

    made = TINY[family]
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    stock = stock_vocabulary or made.stock_vocabulary
    tokenizer = _build_tokenizer(folder, made.tokens, made.named, stock=stock)
    ends = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    size = STOCK_VOCABULARY_SIZE if stock else -(-len(tokenizer) // 8) * 8
    text = {"vocab_size": size, **ends, **text}
    config = tiny_config(family, tokenizer.get_vocab(), vision=vision, top=top, **text)
    asked = made.processor(config, max_pixels or made.max_pixels) if made.processor else None
    processor = build_processor(tokenizer, made.stem, made.chat, **asked) if asked else tokenizer
    save_processor(processor, folder)
    _write_model(folder, config, made.empty_files, seed, dtype, **ends)
    return folder


tiny_qwen2_5_vl = partial(tiny_checkpoint, "qwen2_5_vl")
tiny_ovis2 = partial(tiny_checkpoint, "ovis2")


def tiny_config(
    family: str,
    ids: Mapping[str, int] | None = None,
    *,
    vision: Mapping[str, Any] | None = None,
    top: Mapping[str, Any] | None = None,
    pad_token_id: int = 0,
    **text: Any,
) -> Any:
    """The config, of transformers' class, of a tiny checkpoint or of one of any size. Beside the arguments of
    `tiny_checkpoint`: ``ids`` of at least the special tokens that the config names (None for the published
    ones), and ``pad_token_id``, which is the BOS token, too; ``vocab_size`` is one of ``text``.
    """
    from swift_grpo_ext.hugging_face.configs import class_named, config_fields

    made = TINY[family]
    ends = {"bos_token_id": pad_token_id, "pad_token_id": pad_token_id}
    fields: dict[str, Any] = {**ends, **config_fields({**made.text, **text})}
    if made.vision:
        of_both = {name: text[name] for name in ("initializer_range",) if name in text}
        seen = {**of_both, **made.vision, **(vision or {})}
        around = made.follow(fields, seen) if made.follow else {}
        named = {
            name: ids[tokens] if isinstance(tokens, str) else [ids[token] for token in tokens]
            for name, tokens in made.ids.items()
            if ids is not None
        }
        beside = {**around, **named, **made.top, **(top or {})}
        fields = {"text_config": fields, "vision_config": seen, **beside}
    if made.inside:
        name, around = made.inside
        fields = {name: fields, **around}
    class_name = made.stem + ("ForConditionalGeneration" if made.vision else "ForCausalLM")
    return class_named(f"{made.stem}Config")(**fields, architectures=[class_name])


def _write_model(folder: Path, config: Any, empty: Sequence[str], seed: int, dtype: str, **ends: int) -> None:
    import torch
    import transformers

    from swift_grpo_ext.hugging_face.configs import architectures_of, class_named

    for name in empty:
        torch.save({}, folder / name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = class_named(architectures_of(config)[0])(config).to(getattr(torch, dtype))
    stops = [ends["eos_token_id"], ends["pad_token_id"]]
    model.generation_config = transformers.GenerationConfig(
        do_sample=True, eos_token_id=stops, pad_token_id=ends["pad_token_id"]
    )
    model.save_pretrained(folder, safe_serialization=True)


def _build_tokenizer(
    folder: Path, further: Sequence[str] = (), named: Mapping[str, str] | None = None, *, stock: bool = False
) -> Any:
    """Train a `Qwen2Tokenizer` with ``further`` special tokens, write it to a folder and load it."""
    from transformers import AutoTokenizer

    trained = json.loads(_train().to_str())
    vocabulary: dict[str, int] = trained["model"]["vocab"]
    if stock:
        fillers = range(len(vocabulary), STOCK_SPECIAL_START)
        vocabulary |= {f"filler{number}": number for number in fillers}
    usual = () if QWEN2_5_SPECIAL_TOKENS[0] in further else QWEN2_5_SPECIAL_TOKENS
    special = list(dict.fromkeys([*usual, *further, *(named or {}).values()]))
    first = len(vocabulary)
    trained["added_tokens"] = [_added_token(number, token) for number, token in enumerate(special, first)]
    (folder / "tokenizer.json").write_text(json.dumps(trained, ensure_ascii=False), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(_tokenizer_config(special)), encoding="utf-8")
    options = {"extra_special_tokens": dict(named)} if named else {}
    return AutoTokenizer.from_pretrained(str(folder), **options)


def _train() -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=len(alphabet) + _MERGES, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def _added_token(number: int, content: str) -> dict[str, object]:
    # Qwen marks the tool tags as ordinary tokens, so that decoding with skip_special_tokens keeps them.
    special = not content.endswith("tool_call>")
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": number, "content": content, **flags, "special": special}


def _tokenizer_config(special: Sequence[str]) -> dict[str, object]:
    return {
        "tokenizer_class": "Qwen2Tokenizer",
        "additional_special_tokens": [token for token in special[1:] if not token.endswith("tool_call>")],
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": None,
        "add_bos_token": False,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 32768,
    }
