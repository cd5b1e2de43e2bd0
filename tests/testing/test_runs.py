"""Short runs of the real host on tiny models, as a command and inside this process."""

import json
import subprocess
import sys
import time

import pytest
from PIL import Image
from transformers import AutoProcessor

from swift_grpo_ext import testing
from swift_grpo_ext.errors import HostRunError, OutputFolderError
from swift_grpo_ext.testing.run import kill_tree


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return testing.tiny_qwen2_5_vl(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    pytest.importorskip("sklearn")
    return testing.digits_dataset(tmp_path_factory.mktemp("digits"), limit=16)


def check_two_steps(output):
    records = testing.read_logging(output)
    steps = [record for record in records if "reward" in record]
    assert len(steps) == 2
    assert all("grad_norm" in step and "kl" in step for step in steps)
    completions = testing.read_completions(output)
    assert len(completions) == 8
    assert {"step", "prompt", "completion", "advantages"} <= set(completions[0])


def test_two_grpo_steps_in_this_process(model, digits, tmp_path):
    arguments = testing.grpo_arguments(model, digits.train, tmp_path, reward_funcs="format")
    testing.run_in_process("rlhf", arguments)
    check_two_steps(tmp_path)


def test_two_grpo_steps_as_a_command(model, digits, tmp_path):
    lines = []
    arguments = testing.grpo_arguments(model, digits.train, tmp_path, reward_funcs="format")
    result = testing.run_swift("rlhf", arguments, timeout=240, on_line=lines.append)
    assert result.returncode == 0
    assert lines
    assert "swift-grpo-ext" in result.tail, "the plugin says what it registered"
    check_two_steps(tmp_path)


def test_the_stock_template_trains_on_the_stock_vocabulary(digits, tmp_path):
    model = testing.tiny_checkpoint("qwen2_5_vl", tmp_path / "model", stock_vocabulary=True, hidden_size=16)
    arguments = testing.grpo_arguments(
        model, digits.train, tmp_path / "out", reward_funcs="format", external_plugins=None
    )
    testing.run_in_process("rlhf", arguments)
    check_two_steps(tmp_path / "out")


@pytest.mark.slow
def test_a_failing_command_raises_with_its_last_output():
    with pytest.raises(HostRunError, match=r"swift fly ended with 1.*\n(.*\n)*KeyError: 'fly'"):
        testing.run_swift("fly", [], timeout=120)


def test_a_command_over_its_limit_is_killed():
    result = testing.run_swift("sft", ["--help"], timeout=0.2, check=False)
    assert result.timed_out
    assert result.returncode != 0
    assert result.seconds < 60


def test_killing_reaches_a_child_with_a_session_of_its_own():
    """torchrun starts its ranks like that: they would outlive a killed process group."""
    child = "import time; print('up', flush=True); time.sleep(600)"
    parent = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], start_new_session=True)"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "up\n"
    started = time.monotonic()
    kill_tree(process.pid)
    assert process.stdout.read() == "", "the pipe closes when the last writer is gone"
    assert process.wait() < 0
    assert time.monotonic() - started < 60
    kill_tree(process.pid)


def test_the_kit_itself_loads_neither_torch_nor_the_host():
    code = "import sys, swift_grpo_ext.testing; print({'torch', 'swift', 'transformers'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"


@pytest.mark.parametrize("system", [None, "Answer in one word."])
def test_the_chat_template_gives_the_prompt_of_the_host(model, digits, system):
    from swift.arguments import BaseArguments
    from swift.pipelines import prepare_model_template

    arguments = BaseArguments(model=str(model), use_hf=True, **testing.host_types(model))
    _, template = prepare_model_template(arguments, load_model=False)
    system_turn = [] if system is None else [{"role": "system", "content": system}]
    host = template.encode(
        {
            "messages": [*system_turn, {"role": "user", "content": "<image>Which digit is this?"}],
            "images": [Image.new("RGB", (56, 56))],
        }
    )
    content = [{"type": "image"}, {"type": "text", "text": "Which digit is this?"}]
    processor = AutoProcessor.from_pretrained(model)
    prompt = processor.apply_chat_template(
        [*system_turn, {"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
    )
    ours = processor(images=[Image.new("RGB", (56, 56))], text=[prompt])["input_ids"][0]
    assert list(host["input_ids"]) == list(ours)


def test_digits_are_rows_of_the_host(digits):
    train = testing.read_jsonl(digits.train)
    test = testing.read_jsonl(digits.test)
    assert (len(train), len(test)) == (12, 4)
    row = train[0]
    assert row["messages"][1]["content"] == row["solution"]
    assert Image.open(row["images"][0]).size == (56, 56)
    assert not {row["images"][0] for row in train} & {row["images"][0] for row in test}


def test_the_newest_version_folder_is_read(tmp_path):
    for name, step in (("v2-20260101-000000", 2), ("v10-20260101-000000", 10)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "logging.jsonl").write_text(json.dumps({"step": step}) + "\n")
    assert testing.read_logging(tmp_path) == [{"step": 10}]
    assert testing.read_logging(tmp_path / "v2-20260101-000000") == [{"step": 2}]
    with pytest.raises(OutputFolderError, match="no run of ms-swift"):
        testing.read_logging(tmp_path / "v2-20260101-000000" / "missing")


def test_a_half_written_last_line_is_dropped_and_other_damage_is_told(tmp_path, capsys):
    path = tmp_path / "logging.jsonl"
    path.write_text('{"a": 1}\n{"b":')
    assert testing.read_logging(tmp_path) == [{"a": 1}]
    assert capsys.readouterr().err == ""
    path.write_text('{"a": 1}\noops\n{"b": 2}\n')
    assert testing.read_logging(tmp_path) == [{"a": 1}, {"b": 2}]
    assert capsys.readouterr().err.endswith("logging.jsonl:2\n")
