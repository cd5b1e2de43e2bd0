"""A byte-level BPE tokenizer trained on the spot, with the special tokens of the Qwen2.5 family."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# What the merges are learned from: the words that short vision tasks need, in both of the host's languages.
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
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
)
STOCK_SPECIAL_START = 151643
STOCK_VOCABULARY_SIZE = 151936

# Qwen's pre-tokenizer: single digits, words with one leading character, runs of punctuation, white space.
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_MERGES = 160


def build_tokenizer(
    folder: Path, further: Sequence[str] = (), named: Mapping[str, str] | None = None, *, stock: bool = False
) -> Any:
    """Train a tokenizer, write it to ``folder`` and return it loaded by transformers, a `Qwen2Tokenizer`.

    Args:
        folder: Existing checkpoint folder.
        further: Special tokens that follow those of Qwen2.5, or all if those are among them.
        named: Further ones, by the names by which a processor asks for them.
        stock: Fill the vocabulary so that the special tokens get their published ids (151643 and up).
    """
    from transformers import AutoTokenizer

    trained = json.loads(_train().to_str())
    vocabulary: dict[str, int] = trained["model"]["vocab"]
    if stock:
        fillers = range(len(vocabulary), STOCK_SPECIAL_START)
        vocabulary |= {f"filler{number}": number for number in fillers}
    usual = () if QWEN2_5_SPECIAL_TOKENS[0] in further else QWEN2_5_SPECIAL_TOKENS
    special = list(dict.fromkeys([*usual, *further, *(named or {}).values()]))
    trained["added_tokens"] = [
        _added_token(len(vocabulary) + offset, token) for offset, token in enumerate(special)
    ]
    (folder / "tokenizer.json").write_text(json.dumps(trained, ensure_ascii=False), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(_tokenizer_config(special)), encoding="utf-8")
    options = {"extra_special_tokens": dict(named)} if named else {}
    return AutoTokenizer.from_pretrained(str(folder), **options)


def vocabulary_size(tokenizer: PreTrainedTokenizerBase, *, stock: bool) -> int:
    """Rows of the embedding: Qwen2.5's published number, or the tokenizer's length rounded up to 8."""
    return STOCK_VOCABULARY_SIZE if stock else -(-len(tokenizer) // 8) * 8


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
