"""What people get wrong at the start of a run is one line, and everything else keeps its stack."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
import swift
import torch

from swift_grpo_ext.doctor.faults import _FAULTS, in_one_line


def raised_by(call, *args, **kwargs):
    with pytest.raises(BaseException) as raised:  # noqa: PT011
        call(*args, **kwargs)
    return in_one_line(raised.value, raised.tb)


def test_a_plugin_file_is_named_with_its_line(tmp_path):
    from swift.utils import import_external_file

    plugin = tmp_path / "mine.py"
    plugin.write_text("x = 1\nimport nothing_like_that\n")
    told = str(raised_by(import_external_file, str(plugin)))
    assert told.startswith(
        "swift-grpo-ext: a plugin file cannot be imported: ModuleNotFoundError: No module named"
    )
    assert f"[{plugin}:2] -> fix the file" in told
    assert "gone.py" in str(raised_by(import_external_file, str(tmp_path / "gone.py")))


def test_rows_that_are_not_there(tmp_path, monkeypatch):
    from swift.dataset import load_dataset

    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    gone = str(tmp_path / "gone.jsonl")
    assert f"`{gone}`" in str(raised_by(load_dataset, [gone]))
    assert "count from the folder of the command" in str(raised_by(load_dataset, [gone]))
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    assert "a file of rows is empty -> give --dataset" in str(raised_by(load_dataset, [str(empty)]))
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"foo": "bar"}) + "\n")
    assert "--columns renames" in str(raised_by(load_dataset, [f"{rows}#4"]))


@dataclass
class _NoArguments:
    model: str = ""
    ignore_args_error: bool = False


def test_arguments(tmp_path):
    from swift.arguments import SftArguments
    from swift.pipelines import SwiftSft
    from swift.utils import json_parse_to_dict

    words = ["--model", "x", "--lerning_rate", "1"]
    told = str(raised_by(lambda: SwiftSft._parse_args(SimpleNamespace(args_class=_NoArguments), words)))
    assert "no option has such a name: ValueError: remaining_argv: ['--lerning_rate', '1'] -> `swift" in told
    assert "--deepspeed takes zero0" in str(raised_by(json_parse_to_dict, "zero9"))
    file = tmp_path / "file"
    file.write_text("")
    arguments = SimpleNamespace(output_dir=str(file / "out"), add_version=True, logging_dir=None)
    told = str(raised_by(SftArguments._add_version, arguments))
    assert "NotADirectoryError" in told
    assert told.endswith("by --output_dir")


def test_a_folder_whose_name_says_no_template(tiny_qwen):
    from swift.model import get_model_info_meta
    from swift.template import get_template_meta

    told = str(raised_by(get_template_meta, *get_model_info_meta(str(tiny_qwen))))
    assert "specify `template_type` manually via `--template`" in told
    assert told.endswith("-> or give the folder the published name (Qwen2.5-VL-7B-Instruct), which says both")


def test_paths_of_the_model_a_checkpoint_and_the_prompt_that_are_not_there(tiny_qwen, tmp_path):
    from swift.arguments import BaseArguments
    from swift.utils import safe_snapshot_download, to_abspath

    cure = "count from the folder of the command"
    gone = str(tmp_path / "checkpoint-7")
    told = str(raised_by(to_abspath, gone, True))
    assert f"FileNotFoundError: path: '{gone}' -> fix the path" in told
    assert cure in told
    assert cure in str(raised_by(safe_snapshot_download, gone))
    told = str(raised_by(BaseArguments, model=str(tiny_qwen), template="qwen2_5_vl", system="gone.txt"))
    assert "self.system: gone.txt" in told
    assert cure in told
    told = str(raised_by(safe_snapshot_download, "./tinny", use_hf=True))  # refused before any network
    assert "names no folder here, and no hub provides it: HFValidationError" in told


def test_weights_that_are_missing_or_cut_short(tiny_qwen, tmp_path):
    from transformers import Qwen2_5_VLForConditionalGeneration

    copy = shutil.copytree(tiny_qwen, tmp_path / "copy")
    file = copy / "model.safetensors"
    file.write_bytes(file.read_bytes()[:5000])
    load = Qwen2_5_VLForConditionalGeneration.from_pretrained
    assert "a file of weights is missing or cut short" in str(raised_by(load, copy))
    file.unlink()
    told = str(raised_by(load, copy))
    assert f"no file named model.safetensors, or pytorch_model.bin, found in directory {copy}" in told
    assert "a file of weights is missing or cut short" in told


def test_an_adapter_without_weights(tmp_path):
    from peft.utils import load_peft_weights

    told = str(raised_by(load_peft_weights, str(tmp_path)))
    assert f"'{tmp_path}'" in told
    assert "a file of weights is missing or cut short" in told


def test_a_model_that_an_update_has_broken_cannot_draw():
    told = str(raised_by(torch.multinomial, torch.tensor([torch.nan, 1.0]), 1))
    assert "no token can be drawn: RuntimeError: probability tensor contains" in told
    assert told.endswith("a smaller --learning_rate")


def test_ctrl_c_in_a_plugin_file_is_no_fault_of_it(tmp_path):
    from swift.utils import import_external_file

    plugin = tmp_path / "mine.py"
    plugin.write_text("raise KeyboardInterrupt\n")
    assert raised_by(import_external_file, str(plugin)) is None


def test_code_without_a_module_is_looked_through():
    assert raised_by(exec, "raise ValueError('of made code')", {}) is None


def test_what_is_not_known_keeps_its_stack():
    assert raised_by(json.loads, "{") is None
    assert in_one_line(KeyError("x"), None) is None


def test_what_torch_and_peft_say_of_a_model_that_cannot_train_so():
    weights = torch.ones(1)
    told = str(raised_by(weights.sum().backward))
    assert "does not require grad" in told
    assert "--freeze_llm false" in told
    # Made up: of two ranks, and of a layer of PEFT's.
    reduction = RuntimeError(
        "Expected to have finished reduction in the prior iteration before starting\na new one"
    )
    assert "--ddp_find_unused_parameters true" in str(in_one_line(reduction, None))
    dora = ValueError("lora.ParamWrapper does not work with use_dora=True.")
    assert "--use_dora false" in str(in_one_line(dora, None))


def test_tensors_of_two_devices_are_told_with_the_users_line(tmp_path):
    from swift.utils import import_external_file

    plugin = tmp_path / "mine.py"  # says what a GPU would
    message = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
    plugin.write_text(f"def mix():\n    raise RuntimeError({message!r})\n")
    mix = import_external_file(str(plugin)).mix
    told = str(raised_by(mix))
    assert f"{message} [{plugin}:2] -> move one of them" in told


def test_memory_that_runs_out_where_no_micro_batch_is_computed_is_one_line():
    full = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    told = str(in_one_line(full, None))
    assert told.startswith(
        f"swift-grpo-ext: OutOfMemoryError: {full} -> `swift-grpo-ext plan` says what fits"
    )
    named = torch.OutOfMemoryError(f"{full}\nswift-grpo-ext: a micro-batch of 8 does not fit -> ...")
    assert in_one_line(named, None) is None


def test_chord_without_a_schedule_is_told_its_four_options():
    from swift.rlhf_trainers.utils import mu_schedule_function

    told = str(raised_by(mu_schedule_function, 0, None, None, None, None))
    assert told.startswith("swift-grpo-ext: CHORD has no schedule of its weight mu")
    assert "--chord_mu_warmup_steps 50 --chord_mu_decay_steps 1000" in told


@pytest.mark.parametrize(
    "fault", [fault for fault in _FAULTS if fault.function], ids=lambda fault: fault.function
)
def test_each_function_is_ms_swifts(fault):
    host = Path(swift.__file__).parent
    files = (path.read_text(encoding="utf-8") for path in host.rglob("*.py"))
    assert any(f"def {fault.function}(" in text for text in files)
