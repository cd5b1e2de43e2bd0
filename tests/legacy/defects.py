"""Defects of old hosts, one call each: `python defects.py NAME [PLUGIN]`, with such a host installed.

The plugin is imported as the host would import it, then the defect is called for. Prints what came of it.
"""

import contextlib
import importlib
import sys
import tempfile
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import torch


def none_labels():
    """A1: the merge of the Ovis templates in the forward of GRPO, which has no labels."""
    from swift.llm.template.template.qwen import Ovis1_6Template

    def merge_multimodal(text_input_ids, text_labels, left_padding, **others):
        """As in Ovis2's own code: row by row, over ids and labels together; cut at the model's limit."""
        limit = model.config.multimodal_max_length
        kept = slice(-limit, None) if left_padding else slice(limit)
        rows = [(ids[kept], labels[kept]) for ids, labels in zip(text_input_ids, text_labels, strict=True)]
        ids, labels = (torch.stack(column) for column in zip(*rows, strict=True))
        return None, ids.unsqueeze(-1).float(), labels, None

    model = SimpleNamespace(device="cpu", config=SimpleNamespace(), merge_multimodal=merge_multimodal)
    model.forward = lambda inputs_embeds, labels=None: None
    template = object.__new__(Ovis1_6Template)
    template.__dict__.update(model=model, mode="rlhf", padding_side="right", max_length=6)
    inputs = {"input_ids": torch.ones(2, 10, dtype=torch.long), "pixel_values": None}
    made = template.pre_forward_hook(model, (), inputs)[1]
    return f"embeds {made['inputs_embeds'].shape[1]} tokens of 10, labels {made.get('labels')}"


def one_generation():
    """A4: a group of one completion."""
    from swift.trainers.rlhf_arguments import GRPOConfig

    with tempfile.TemporaryDirectory() as folder:
        made = GRPOConfig(output_dir=folder, num_generations=1, per_device_train_batch_size=2, use_cpu=True)
    return f"accepts {made.num_generations} generation"


def frozen_tower():
    """A7: what ``--freeze_vit`` finds in Qwen2.5-VL of transformers 4.52, by the host's names."""
    from swift.llm.model.model_arch import get_model_arch
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    with torch.device("meta"):
        model = Qwen2_5_VLForConditionalGeneration(
            Qwen2_5_VLConfig(num_hidden_layers=1, vision_config={"depth": 1})
        )
    names = tuple(get_model_arch("qwen2_vl").vision_tower)
    tower = [name for name, _ in model.named_parameters() if ".visual." in f".{name}"]
    return f"freezes {sum(name.startswith(names) for name in tower)} of {len(tower)}"


def tensor_parallel():
    """A9: four completions for a tensor-parallel group of eight ranks."""
    from swift.llm.argument.rlhf_args import RLHFArguments

    utils = __import__("swift.utils", fromlist=["utils"])
    utils.get_device_count, utils.get_dist_setting = lambda: 8, lambda: (0, 0, 8, 8)
    arguments = SimpleNamespace(
        rlhf_type="grpo",
        num_generations=4,
        tensor_parallel_size=8,
        num_infer_workers=8,
        use_vllm=True,
        use_lmdeploy=False,
        vllm_server_host=None,
        async_generate=False,
        sleep_level=0,
        mini_batch_size=None,
    )
    RLHFArguments._check_grpo(arguments)
    return "accepts 4 generations for 8 ranks"


def identical_completions():
    """Seeds of a batch of three requests, in the host's loop over them; vLLM itself is not needed for it."""
    names = ("AsyncEngineArgs", "AsyncLLMEngine", "SamplingParams", "EngineArgs", "LLMEngine")
    vllm = ModuleType("vllm")
    vllm.__dict__.update(dict.fromkeys(names, object), __spec__=ModuleSpec("vllm", None), __version__="0.8.5")
    sys.modules["vllm"] = vllm
    from swift.llm.infer.infer_engine.vllm_engine import VllmEngine
    from swift.llm.infer.protocol import RequestConfig

    seeds = []

    class Engine(VllmEngine):
        def __init__(self):
            self.use_async_engine, self._request_count = False, 0
            self.engine_args = SimpleNamespace(tensor_parallel_size=1)

        def _batch_encode(self, requests, **kwargs):
            return [{} for _ in requests], []

        def _prepare_generation_config(self, request_config):
            return SimpleNamespace(seed=request_config.seed)

        def _add_stop_words(self, *args):
            pass

        def set_default_max_tokens(self, *args):
            pass

        def _add_request(self, inputs, generation_config, *args, **kwargs):
            seeds.append(generation_config.seed)
            if len(seeds) == 3:
                raise EOFError

    if len(sys.argv) > 2:
        plugin(sys.argv[2])  # once more: now there is a vllm
    template = SimpleNamespace(set_mode=lambda mode: None, template_meta=None)
    with contextlib.suppress(EOFError):
        Engine().infer([1, 2, 3], RequestConfig(seed=40), template=template, use_tqdm=False)
    return f"seeds {seeds}"


def plugin(path):
    """Import the file as the host does: its folder first on the path, then by name."""
    sys.modules.pop("legacy_swift3", None)
    sys.path.insert(0, str(Path(path).parent))
    importlib.import_module("legacy_swift3")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        plugin(sys.argv[2])
    try:
        print("RESULT", globals()[sys.argv[1]]())
    except (TypeError, ValueError) as error:
        print(f"RESULT {type(error).__name__}: {error}")
