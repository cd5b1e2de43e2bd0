"""What ms-swift's own argument classes refuse, asked in a child process."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from swift_grpo_ext.doctor.check import command, inputs
from swift_grpo_ext.doctor.check.facts.environment import Environ
from swift_grpo_ext.doctor.check.host import table as host_table
from swift_grpo_ext.doctor.check.rules import refused
from swift_grpo_ext.doctor.check.unknown import PLUGIN, Unknown
from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.findings import Severity
from swift_grpo_ext.folders import kept, read_json

TABLE = yaml.safe_load(Path(__file__).with_name("refusals.yaml").read_text(encoding="utf-8"))
PLAIN = ("--rlhf_type", "grpo", "--model", "Qwen/Qwen2.5-VL-3B-Instruct", "--dataset", "my/data")
MEGATRON = ("--tensor_model_parallel_size", "1", "--reward_funcs", "format", "--use_vllm", "true")


@pytest.fixture(autouse=True, scope="module")
def _cache_of_its_own(tmp_path_factory):
    """Answers of this test alone; the table of the parser is the one that is there."""
    table = host_table.table()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        kept(host_table.cache_folder() / "table.json", table)
        yield


def run_of(words, *more, ranks="1"):
    plain = (*PLAIN, *(() if more else ("--gradient_accumulation_steps", "8")))
    return inputs.run_of([*plain, *more, *words], environ=Environ({"NPROC_PER_NODE": ranks}))


def said_to(commands):
    """The message to each command, from one child for all; empty if ms-swift refuses nothing."""
    return host_table.ask([refused.question(run) for run in commands])


def test_ms_swift_refuses_what_it_refuses_in_a_run():
    cases = [(words, (), begins) for words, begins in TABLE["swift"].items()]
    cases += [(words, MEGATRON, begins) for words, begins in TABLE["megatron"].items()]
    answers = said_to([run_of(words.split(), *more) for words, more, _ in cases])
    missed = {}
    for (words, _, begins), text in zip(cases, answers, strict=True):
        if not text.startswith(begins):
            missed[words] = text
    assert missed == {}
    assert len(cases) >= 48


def test_batches_of_megatron_are_shared_out_over_the_launch_s_ranks():
    words = ["--global_batch_size", "16", "--num_generations", "8", "--micro_batch_size", "1"]
    runs = [run_of(words, *MEGATRON, ranks=ranks) for ranks in ("2", "4", Unknown("$N"))]
    of_two, of_four, of_unknown = said_to(runs)
    assert of_two == of_unknown == ""
    assert of_four.startswith("ValueError: num_rollout_prompt (2) = ")


def test_a_message_that_names_a_given_argument_is_about_that_one():
    best = ["--val_dataset", "a", "--load_best_model_at_end", "true", "--per_device_eval_batch_size", "8"]
    uneven = ["--eval_strategy", "steps", "--save_steps", "50", "--eval_steps", "30"]
    (one,) = refused.refusals([run_of([*best, *uneven, "--max_completion_length", "256"])])
    assert "ValueError: --load_best_model_at_end requires the saving steps" in one.what
    assert one.where == "--load_best_model_at_end"


def test_a_message_of_what_is_missing_is_about_that():
    without = inputs.run_of(["--rlhf_type", "grpo", "--model", "x/y", "--eval_strategy", "no"])
    (one,) = refused.refusals([without])
    assert "Please input the training dataset" in one.what
    assert one.where == "--dataset"


def test_ms_swift_refuses_no_setting_that_runs():
    """No false alarm from this machine, which has no GPU, no vLLM, no liger-kernel, no model and no server."""
    launches = yaml.safe_load(Path(__file__).with_name("launches.yaml").read_text(encoding="utf-8"))
    texts = [*launches["settings"].values(), *launches["warned"].values()]
    answers = said_to([run_of(text.replace("$(swift-grpo-ext path)", PLUGIN).split()) for text in texts])
    assert {text: said for text, said in zip(texts, answers, strict=True) if said} == {}


def test_a_run_with_values_that_are_not_known_is_not_asked_about():
    lazy = ["--lazy_tokenize", "true", "--streaming", "true"]
    unknown = run_of([*lazy, "--delta", Unknown("$DELTA")])
    more = run_of([*lazy, Unknown("$MORE", many=True)])
    named = run_of([*lazy, "--output_dir", Unknown("$OUT"), "--dataset", Unknown("$DATA")])
    note, error = sorted(refused.refusals([unknown, more, named]), key=lambda one: one.rule)[::-1]
    assert "Streaming and lazy_tokenize are incompatible" in error.what
    assert note.not_checked == "ms-swift's own checks"
    assert refused.refusals([unknown]) == [note]
    assert {"--delta", "ms-swift's own checks"} <= {
        one.not_checked for one in (*command.findings_of(unknown), note)
    }


def test_ours_come_first_then_ms_swifts(capsys):
    words = [*PLAIN, "--torch_dtype", "float16", "--use_liger_kernel", "true", "--delta", "2"]
    words += ["--reward_funcs", "accuracy"]
    assert command.check(words, row_limit=0) == 2
    printed = capsys.readouterr().out
    ours = printed.index("float16 overflows in these models")
    theirs = printed.index(
        "ms-swift refuses it: ValueError: Liger loss does not support two-sided GRPO loss yet."
    )
    assert ours < theirs < printed.index("it will fail: ")
    assert command.check(words, row_limit=0, as_json=True) == 2
    assert "host-refuses" in {row["rule"] for row in json.loads(capsys.readouterr().out)}
    command.check(words, row_limit=0, quick=True)
    last = capsys.readouterr().out
    assert "Liger loss" not in last
    assert "ms-swift's own checks (--quick)" in last


def test_a_child_that_cannot_answer_is_named_and_ours_stand(monkeypatch):
    def fails(questions):
        raise SwiftGrpoExtError("ms-swift could not be asked: no such module", fix="install it")

    monkeypatch.setattr(host_table, "ask", fails)
    (note,) = refused.refusals([run_of(["--seed", "7"])])
    assert note.severity is Severity.NOTE
    assert "no such module" in note.what


def test_a_folder_called_swift_beside_the_script_is_not_imported(tmp_path, monkeypatch):
    (tmp_path / "swift").mkdir()
    (tmp_path / "swift/__init__.py").write_text("raise RuntimeError('the wrong one')\n")
    monkeypatch.chdir(tmp_path)
    assert said_to([run_of(["--warmup_ratio", "1"])])[0]
    assert os.listdir(tmp_path) == ["swift"]


def test_an_installed_megatron_is_not_imported(tmp_path, monkeypatch):
    """It needs a GPU: the answers are the same with and without it."""
    for name in ("megatron", "mcore_bridge"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('no GPU')\n")
    run = run_of(["--micro_batch_size", "1", "--global_batch_size", "3", "--num_generations", "2"], *MEGATRON)
    question = refused.question(run)
    environ = {**host_table.child_environ(), "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(
        host_table.CHILD, input=json.dumps(question), env=environ, capture_output=True, text=True, timeout=300
    )
    (answer,) = said_to([run])
    assert answer
    assert json.loads(done.stdout) == answer


def test_the_cached_table_is_written_whole_and_a_broken_one_is_made_again(tmp_path):
    path = tmp_path / "deep/table.json"
    assert kept(path, {"a": 1}) == {"a": 1}
    assert read_json(path) == {"a": 1}
    assert [file.name for file in path.parent.iterdir()] == ["table.json"]
    path.write_text('{"a": ')
    assert read_json(path) is None
