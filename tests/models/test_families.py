import subprocess
import sys

import pytest
from transformers import Ovis2Config, Qwen2_5_VLConfig

from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.models.families import FAMILIES, family_of


def test_published_defaults_are_those_of_the_configs():
    for name, config in {"qwen2_5_vl": Qwen2_5_VLConfig(), "ovis2": Ovis2Config()}.items():
        assert family_of(config) == family_of(name) == FAMILIES[name]


def test_ids_come_from_the_config():
    ovis = family_of(Ovis2Config(image_token_id=7, visual_indicator_token_ids=[8, 9, 10, 11, 12]))
    assert ovis.placeholder_token_ids == (7,)
    assert ovis.forbidden_token_ids == (7, 8, 9, 10, 11, 12)
    qwen = family_of(
        Qwen2_5_VLConfig(image_token_id=3, video_token_id=4, vision_start_token_id=5, vision_end_token_id=6)
    )
    assert qwen.placeholder_token_ids == (3, 4)
    assert qwen.forbidden_token_ids == (3, 4, 5, 6)


@pytest.mark.parametrize("name", ["ovis2", "ovis2_hf", "Ovis2ForConditionalGeneration"])
def test_names(name):
    assert family_of(name).family == "ovis2"


def test_unknown_family_is_none():
    assert family_of("llama") is None


def test_require_names_family_and_reason():
    facts = family_of("ovis2")
    facts.require("shared_prefix")
    assert facts.lacks["vllm"]
    with pytest.raises(RefusedError, match="ovis2 does not support vllm"):
        facts.require("vllm")


def test_module_paths_exist_in_the_installed_transformers():
    import torch
    from transformers import Ovis2ForConditionalGeneration, Qwen2_5_VLForConditionalGeneration

    classes = {"ovis2": Ovis2ForConditionalGeneration, "qwen2_5_vl": Qwen2_5_VLForConditionalGeneration}
    configs = {"ovis2": Ovis2Config(), "qwen2_5_vl": Qwen2_5_VLConfig()}
    for name, facts in FAMILIES.items():
        with torch.device("meta"):
            model = classes[name](configs[name])
        assert type(model).__name__ == facts.architecture
        for path in (*facts.vision_tower, *facts.aligner, *facts.language_model):
            model.get_submodule(path)


def test_why_vllm_cannot_serve_native_ovis2_still_holds():
    """vLLM's backend for transformers' own classes calls this; when it is there, the fact wants another look."""
    from transformers.models.ovis2 import Ovis2Processor
    from transformers.models.qwen2_5_vl import Qwen2_5_VLProcessor

    assert hasattr(Qwen2_5_VLProcessor, "_get_num_multimodal_tokens")
    assert not hasattr(Ovis2Processor, "_get_num_multimodal_tokens")


def test_importing_needs_neither_host_nor_torch():
    code = (
        "import sys; import swift_grpo_ext.models.families;"
        "sys.exit(bool({'swift', 'torch', 'transformers'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
