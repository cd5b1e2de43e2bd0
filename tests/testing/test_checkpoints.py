"""The tiny checkpoints: complete, the same for the same seed, and laid out as the published ones."""

import hashlib

import pytest
import torch
from PIL import Image
from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor, GenerationConfig

from swift_grpo_ext.testing import tiny_config, tiny_ovis2, tiny_qwen2_5_vl

BUILDERS = {"qwen2_5_vl": tiny_qwen2_5_vl, "ovis2": tiny_ovis2}
CLASSES = {"qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration", "ovis2": "Ovis2ForConditionalGeneration"}
FAMILIES = pytest.mark.parametrize("family", BUILDERS)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("checkpoints")
    return {family: build(root / family) for family, build in BUILDERS.items()}


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def encode(folder, image, text="Which digit is this?"):
    processor = AutoProcessor.from_pretrained(folder)
    messages = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": text}]}]
    prompt = processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return processor, processor(images=[image], text=[prompt], return_tensors="pt")


@FAMILIES
def test_forward_with_an_image(folders, family):
    model = AutoModelForImageTextToText.from_pretrained(folders[family]).eval()
    assert type(model).__name__ == CLASSES[family]
    _, dark = encode(folders[family], Image.new("RGB", (56, 84), "black"))
    _, light = encode(folders[family], Image.new("RGB", (56, 84), "white"))
    with torch.no_grad():
        logits = model(**dark).logits
        other = model(**light).logits
    assert logits.shape == (1, dark["input_ids"].shape[1], model.config.get_text_config().vocab_size)
    assert torch.isfinite(logits).all()
    assert (logits - other).abs().max() > 1e-4, "the image does not reach the logits"


@FAMILIES
def test_generates_with_its_generation_config(folders, family):
    model = AutoModelForImageTextToText.from_pretrained(folders[family]).eval()
    processor, batch = encode(folders[family], Image.new("RGB", (56, 56)))
    tokens = model.generate(**batch, do_sample=False, max_new_tokens=4)
    assert tokens.shape[1] <= batch["input_ids"].shape[1] + 4
    assert isinstance(processor.tokenizer.decode(tokens[0]), str)
    config = GenerationConfig.from_pretrained(folders[family])
    assert config.eos_token_id[0] == processor.tokenizer.convert_tokens_to_ids("<|im_end|>")


@FAMILIES
@pytest.mark.parametrize(
    "text", ["Which digit is this?", "图中写的是哪个数字？", "a\n\n b 123 😀", "<|im_end|>"]
)
def test_text_survives_a_round_trip(folders, family, text):
    tokenizer = AutoProcessor.from_pretrained(folders[family]).tokenizer
    assert tokenizer.decode(tokenizer.encode(text)) == text


@FAMILIES
def test_the_same_seed_gives_the_same_bytes(folders, family, tmp_path):
    before = torch.random.get_rng_state()
    again = digests(BUILDERS[family](tmp_path / "again"))
    other = digests(BUILDERS[family](tmp_path / "other", seed=1))
    assert torch.equal(before, torch.random.get_rng_state()), "the global random state was touched"
    assert again == digests(folders[family])
    assert {name for name in again if again[name] != other[name]} == {"model.safetensors"}


@FAMILIES
def test_sizes_and_dtype(family, tmp_path):
    folder = BUILDERS[family](
        tmp_path / "small", hidden_size=16, num_hidden_layers=1, num_attention_heads=1, dtype="bfloat16"
    )
    config = AutoConfig.from_pretrained(folder)
    assert config.get_text_config().hidden_size == 16
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype="auto")
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


def test_qwen_stock_vocabulary_has_the_published_ids(tmp_path):
    folder = tiny_qwen2_5_vl(tmp_path / "stock", stock_vocabulary=True, hidden_size=16, num_attention_heads=1)
    tokenizer = AutoProcessor.from_pretrained(folder).tokenizer
    published = {
        "<|endoftext|>": 151643,
        "<|im_end|>": 151645,
        "<|vision_start|>": 151652,
        "<|image_pad|>": 151655,
        "<|video_pad|>": 151656,
        "<|file_sep|>": 151664,
    }
    assert {token: tokenizer.convert_tokens_to_ids(token) for token in published} == published
    config = AutoConfig.from_pretrained(folder)
    assert (config.image_token_id, config.text_config.vocab_size) == (151655, 151936)
    assert tokenizer.decode(tokenizer.encode("Which digit?")) == "Which digit?"


def test_ovis_stock_vocabulary_has_the_published_ids(tmp_path):
    folder = tiny_ovis2(tmp_path / "stock", stock_vocabulary=True, hidden_size=16, num_attention_heads=1)
    config = AutoConfig.from_pretrained(folder)
    tokenizer = AutoProcessor.from_pretrained(folder).tokenizer
    assert config.image_token_id == tokenizer.convert_tokens_to_ids("<IMG_ATOM>") == 151665
    indicators = ["<IMG_START>", "<IMG_GRID>", "<IMG_COL>", "<IMG_ROW>", "<IMG_END>"]
    assert tokenizer.convert_tokens_to_ids(indicators) == list(config.visual_indicator_token_ids)
    assert list(config.visual_indicator_token_ids) == [151666, 151667, 151668, 151669, 151670]


@pytest.mark.parametrize(
    ("side", "tiles"), [(56, 1), (112, 5)], ids=["one tile", "four tiles and a thumbnail"]
)
def test_ovis_image_tokens_match_the_tiles(folders, side, tiles):
    processor, batch = encode(folders["ovis2"], Image.new("RGB", (side, side)))
    assert batch["pixel_values"].shape == (tiles, 3, 56, 56)
    atom = processor.tokenizer.convert_tokens_to_ids("<IMG_ATOM>")
    assert int((batch["input_ids"] == atom).sum()) == 4 * tiles


def test_configs_take_the_published_shapes():
    qwen = tiny_config(
        "qwen2_5_vl",
        vision={"hidden_size": 1280, "intermediate_size": 3420, "depth": 32, "num_heads": 16},
        hidden_size=2048,
        intermediate_size=11008,
        num_hidden_layers=36,
        num_attention_heads=16,
        num_key_value_heads=2,
        vocab_size=151936,
    )
    assert qwen.text_config.rope_parameters["mrope_section"] == [16, 24, 24]
    assert list(qwen.vision_config.fullatt_block_indexes) == [7, 15, 23, 31]
    assert qwen.image_token_id == 151655
    assert tiny_config("ovis2", vocab_size=151936).visual_indicator_token_ids[0] == 151666
