"""Conversion of original Ovis2 checkpoints, on tiny stand-ins in the original layout."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from swift_grpo_ext.errors import CheckpointError, OutputFolderError, RefusedError
from swift_grpo_ext.hugging_face.answers import parts_of
from swift_grpo_ext.models.ovis2_convert import INDEX, convert_checkpoint
from swift_grpo_ext.models.ovis2_keys import native_names
from swift_grpo_ext.testing import tiny_ovis2
from tests.precision import DOUBLE, in_float64

POSITIONS = "visual_tokenizer.backbone.preprocessor.pos_embed"
QKV = "visual_tokenizer.backbone.trunk.blocks.0.attn.qkv.weight"


def original_names(depth, text_names):
    tower = "visual_tokenizer.backbone."
    names = [f"{tower}preprocessor.{name}" for name in ("pos_embed", "patchifier.proj.weight")]
    names += [f"{tower}preprocessor.patchifier.{name}" for name in ("proj.bias", "norm.weight")]
    block = ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2", "mlp.fc3", "norm_1", "norm_2")
    names += [f"{tower}trunk.blocks.{layer}.{name}.weight" for layer in range(depth) for name in block]
    names += [f"{tower}trunk.post_trunk_norm.weight", "visual_tokenizer.head.0.weight", "vte.weight"]
    names += ["visual_tokenizer.head.1.weight", "visual_tokenizer.head.1.bias"]
    return [*names, *("llm.model." + name for name in text_names)]


@pytest.fixture(scope="module")
def native(tmp_path_factory):
    folder = tiny_ovis2(tmp_path_factory.mktemp("native"), stock_vocabulary=True)
    weights = load_file(folder / "model.safetensors")
    # Norms start at one and biases at zero: make every weight tell.
    generator = torch.Generator().manual_seed(0)
    weights = {
        name: tensor + 0.1 * torch.randn(tensor.shape, generator=generator)
        for name, tensor in weights.items()
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def original(native, tmp_path_factory):
    """The native model in the original layout: two shards, fused attention, old config, no image tokens."""
    folder = tmp_path_factory.mktemp("original")
    weights = load_file(native / "model.safetensors")
    prefix = "model.language_model."
    text = [name.removeprefix(prefix) for name in weights if name.startswith(prefix)]
    made = {}
    for name in original_names(2, text):
        tensor = torch.cat([weights[part] for part in native_names(name)])
        made[name] = tensor.unsqueeze(0) if name.endswith("pos_embed") else tensor
    halves = list(made)[::2], list(made)[1::2]
    weight_map = {}
    for number, names in enumerate(halves, start=1):
        shard = f"model-0000{number}-of-00002.safetensors"
        save_file(
            {name: made[name].contiguous() for name in names}, folder / shard, metadata={"format": "pt"}
        )
        weight_map |= dict.fromkeys(names, shard)
    (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    (folder / "config.json").write_text(json.dumps(original_config(native)))
    write_tokenizer(native, folder)
    return folder


def original_config(native):
    config = json.loads((native / "config.json").read_text())
    vision = config["vision_config"]
    tower = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "image_size")
    backbone = {name: vision[name] for name in (*tower, "patch_size", "num_channels", "rms_norm_eps")}
    visual = {name: vision[name] for name in ("vocab_size", "hidden_stride", "tokenize_function")}
    return {
        "architectures": ["Ovis"],
        "auto_map": {"AutoConfig": "configuration_ovis.OvisConfig"},
        "model_type": "ovis",
        "llm_config": config["text_config"],
        "visual_tokenizer_config": {**visual, "backbone_config": {**backbone, "use_bias": False}},
    }


def write_tokenizer(native, folder):
    """The tokenizer as it was before the image tokens were added."""
    tokenizer = json.loads((native / "tokenizer.json").read_text())
    tokenizer["added_tokens"] = [t for t in tokenizer["added_tokens"] if not t["content"].startswith("<IMG_")]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def load(folder):
    from transformers import AutoProcessor, Ovis2ForConditionalGeneration

    model = Ovis2ForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    return model, AutoProcessor.from_pretrained(folder)


def test_the_converted_model_gives_the_same_logits(native, original, tmp_path):
    from tests.models.contract_cases import picture

    target = convert_checkpoint(original, tmp_path / "converted")
    before, after = load(native), load(target)
    prompt = "<|im_start|>user\n<image>\nWhich digit?<|im_end|>\n<|im_start|>assistant\n"
    inputs = [
        processor(text=prompt, images=[picture(120, 60)], return_tensors="pt")
        for _, processor in (before, after)
    ]
    assert torch.equal(inputs[0]["input_ids"], inputs[1]["input_ids"]), "tokens got their published ids"
    with torch.no_grad():
        logits = [
            model(**{name: found[name] for name in ("input_ids", "attention_mask", "pixel_values")}).logits
            for (model, _), found in zip((before, after), inputs, strict=True)
        ]
    assert torch.equal(*logits)
    assert after[0].config.tie_word_embeddings
    assert [path.name for path in target.glob("*.safetensors")] == ["model.safetensors"]


def test_an_output_layer_of_its_own_is_kept_and_one_that_is_tied_is_the_embedding(original, tmp_path):
    own = torch.randn(64, 64, generator=torch.Generator().manual_seed(2))
    shard = "model-00001-of-00002.safetensors"
    for tied in (False, True):
        folder = shutil.copytree(original, tmp_path / f"original_{tied}")
        embedding = load_file(native := folder / shard).get("llm.model.embed_tokens.weight")
        if embedding is None:
            embedding = load_file(folder / "model-00002-of-00002.safetensors")[
                "llm.model.embed_tokens.weight"
            ]
        head = own.repeat(-(-len(embedding) // 64), embedding.shape[1] // 64)[: len(embedding)]
        save_file({**load_file(native), "llm.lm_head.weight": head}, native, metadata={"format": "pt"})
        reconfigured(folder, "llm_config", tie_word_embeddings=tied)
        model, _ = load(convert_checkpoint(folder, tmp_path / f"converted_{tied}"))
        assert torch.equal(model.get_output_embeddings().weight, embedding if tied else head)


def reference_features(weights, pixels, config):
    """Features of a tile, computed from the weights under their ORIGINAL names, as the original is written."""
    tower = "visual_tokenizer.backbone."
    vision, heads = config.vision_config, config.vision_config.num_attention_heads

    def norm(x, name):
        scaled = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + vision.rms_norm_eps)
        return scaled * weights[f"{tower}{name}.weight"]

    patches = "preprocessor.patchifier."
    kernel, bias = (weights[f"{tower}{patches}proj.{part}"] for part in ("weight", "bias"))
    x = torch.nn.functional.conv2d(pixels, kernel, bias, stride=vision.patch_size).flatten(2).transpose(1, 2)
    x = norm(x, patches + "norm") + weights[tower + "preprocessor.pos_embed"]
    for layer in range(vision.num_hidden_layers):
        block = f"trunk.blocks.{layer}."
        get = lambda name, block=block: weights[f"{tower}{block}{name}.weight"]  # noqa: E731
        batch, tokens, width = x.shape
        qkv = (norm(x, block + "norm_1") @ get("attn.qkv").T).reshape(batch, tokens, 3, heads, width // heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + mixed.transpose(1, 2).reshape(batch, tokens, width) @ get("attn.proj").T
        hidden = norm(x, block + "norm_2")
        gated = torch.nn.functional.silu(hidden @ get("mlp.fc1").T) * (hidden @ get("mlp.fc3").T)
        x = x + gated @ get("mlp.fc2").T
    x = norm(x, "trunk.post_trunk_norm")
    side, stride = int(x.shape[1] ** 0.5), vision.hidden_stride
    x = x.reshape(len(x), side // stride, stride, side // stride, stride, -1).permute(0, 1, 3, 2, 4, 5)
    logits = x.reshape(len(x), (side // stride) ** 2, -1) @ weights["visual_tokenizer.head.0.weight"].T
    head = (weights[f"visual_tokenizer.head.1.{part}"] for part in ("weight", "bias"))
    words = torch.nn.functional.layer_norm(logits, logits.shape[-1:], *head).softmax(-1)
    return words @ weights["vte.weight"][: words.shape[-1]]


def test_each_weight_means_what_it_meant(original, tmp_path):
    model = load(convert_checkpoint(original, tmp_path / "converted"))[0].double()
    weights = {}
    for shard in original.glob("*.safetensors"):
        weights |= {name: weight.double() for name, weight in load_file(shard).items()}
    pixels = torch.randn(2, 3, 56, 56, generator=torch.Generator().manual_seed(1)).double()
    with torch.no_grad(), in_float64():
        found = parts_of(model.get_image_features(pixel_values=pixels)).own
        expected = reference_features(weights, pixels, model.config)
    assert (found - expected).abs().max() < DOUBLE


def without(folder, name):
    for shard in Path(folder).glob("*.safetensors"):
        weights = load_file(shard)
        if name in weights:
            del weights[name]
            save_file(weights, shard, metadata={"format": "pt"})


def changed(folder, name, tensor):
    for shard in Path(folder).glob("*.safetensors"):
        weights = load_file(shard)
        if name in weights:
            save_file({**weights, name: tensor}, shard, metadata={"format": "pt"})


def reconfigured(folder, part, **changes):
    config = json.loads((folder / "config.json").read_text())
    config[part].update(changes)
    (folder / "config.json").write_text(json.dumps(config))


def reindexed(folder, weight_map):
    (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))


def renamed_config(folder, key):
    config = json.loads((folder / "config.json").read_text())
    config.pop(key)
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda f: without(f, "vte.weight"),
            r"Missing key\(s\) in state_dict: \"model.visual_embeddings_table",
        ),
        (
            lambda f: (f / "model-00002-of-00002.safetensors").unlink(),
            "cannot be read: No such file.*model-00002",
        ),
        (lambda f: (f / "model-00002-of-00002.safetensors").write_bytes(b"x" * 99), "shard cannot be read"),
        (lambda f: renamed_config(f, "llm_config"), "config.json lacks 'llm_config'"),
        (
            lambda f: (f / "config.json").unlink(),
            r"config.json cannot be read as a JSON object: .*No such file",
        ),
        (
            lambda f: (f / "config.json").write_text("{"),
            "config.json cannot be read as a JSON object: Expecting",
        ),
        (lambda f: (f / "tokenizer.json").unlink(), "tokenizer"),
        (lambda f: (f / "tokenizer.json").write_text("{}"), "the tokenizer cannot be loaded"),
        (lambda f: reindexed(f, ["a"]), "no weight_map of file names"),
        (lambda f: reindexed(f, {"vte.weight": 5}), "no weight_map of file names"),
        (
            lambda f: reindexed(f, {"vte.weight": "../../../etc/passwd"}),
            r"cannot be read: No such file.*broken/passwd",
        ),
        (lambda f: reconfigured(f, "llm_config", hidden_size="64"), "config.json makes no model"),
        (lambda f: reconfigured(f, "llm_config", num_attention_heads=0), "config.json makes no model"),
        (lambda f: reconfigured(f, "llm_config", model_type="none"), "config.json makes no model"),
        (
            lambda f: save_file({"odd": torch.zeros(1)}, f / "model-00001-of-00002.safetensors"),
            "unknown weight odd",
        ),
        (
            lambda f: changed(f, "vte.weight", torch.tensor(1.0)),
            r"model.visual_embeddings_table.weight: .* torch.Size\(\[\]\) .* torch.Size\(\[64, 64\]\)",
        ),
        (
            lambda f: changed(f, "vte.weight", torch.zeros(3, 3)),
            r"model.visual_embeddings_table.weight: .* torch.Size\(\[3, 3\]\) .* torch.Size\(\[64, 64\]\)",
        ),
        (lambda f: changed(f, QKV, torch.zeros(4, 2)), r"k_proj.weight: .* torch.Size\(\[1, 2\]\)"),
        (lambda f: changed(f, QKV, torch.tensor(1.0)), "shard cannot be read"),
        (lambda f: changed(f, POSITIONS, torch.zeros(4, 2)), r"position_embedding.weight: .*\[4, 2\]"),
        (lambda f: changed(f, POSITIONS, torch.tensor(1.0)), "shard cannot be read"),
    ],
)
def test_what_is_wrong_is_said_and_no_config_is_left(original, tmp_path, damage, message):
    folder = tmp_path / "broken"
    shutil.copytree(original, folder)
    damage(folder)
    with pytest.raises(CheckpointError, match=message):
        convert_checkpoint(folder, tmp_path / "converted")
    assert not list((tmp_path / "converted").glob("*")), "so that the next try finds an empty folder"


def test_a_converted_or_a_full_folder_is_refused(native, original, tmp_path):
    with pytest.raises(CheckpointError, match="layout already"):
        convert_checkpoint(native, tmp_path / "converted")
    with pytest.raises(CheckpointError, match=r"not empty \[.*\] -> remove it, or give another"):
        convert_checkpoint(original, native)


def test_a_killed_conversion_a_file_and_a_folder_that_cannot_be_written_are_told(original, tmp_path):
    killed = tmp_path / "killed"
    killed.mkdir()
    (killed / "model-00001-of-00002.safetensors").write_bytes(b"half")
    with pytest.raises(CheckpointError, match="not empty"):
        convert_checkpoint(original, killed)
    assert (killed / "model-00001-of-00002.safetensors").exists(), "what is there is the user's"
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="this is a file"):
        convert_checkpoint(original, tmp_path / "file")
    with pytest.raises(OutputFolderError, match="cannot write there: Not a directory"):
        convert_checkpoint(original, tmp_path / "file" / "folder")
    with pytest.raises(
        CheckpointError, match=r"config\.json cannot be read as a JSON object: .*Not a directory"
    ):
        convert_checkpoint(original / "config.json", tmp_path / "converted")


def test_loading_the_original_gives_the_command_that_mends_it(original):
    from swift.model import get_model_processor

    import swift_grpo_ext

    swift_grpo_ext.register(["templates"])
    with pytest.raises(RefusedError, match=f"convert-ovis2 {original} {original}-hf"):
        get_model_processor(str(original), model_type="ovis2", torch_dtype=torch.float32)


def test_loading_the_native_one_as_remote_gives_the_right_type(native):
    from swift.model import get_model_processor

    import swift_grpo_ext

    swift_grpo_ext.register(["templates"])
    with pytest.raises(RefusedError, match="--model_type ovis2_hf"):
        get_model_processor(str(native), model_type="ovis2", torch_dtype=torch.float32)


def test_the_command(original, tmp_path):
    from typer.testing import CliRunner

    from swift_grpo_ext.cli import app

    result = CliRunner().invoke(app, ["convert-ovis2", str(original), str(tmp_path / "converted")])
    assert result.exit_code == 0
    assert (tmp_path / "converted" / "config.json").is_file()
