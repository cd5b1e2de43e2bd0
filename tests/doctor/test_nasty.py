"""Inputs that nobody writes in good faith: one line and exit code 3, in a moment; and words that stay short."""

import os
import time

import pytest

from swift_grpo_ext.doctor.check import command, inputs
from swift_grpo_ext.doctor.check.script import read_script
from swift_grpo_ext.doctor.check.unknown import written

pytestmark = pytest.mark.usefixtures("launch_folder")

BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
FILES = {
    "bomb.yaml": BOMB.encode(),
    "brackets.json": b"[" * 100_000,
    "brackets.yaml": b"[" * 100_000,
    "large.yaml": b"model: x\n" * 100_000,
    "options.sh": b"swift rlhf " + b"--seed 1 " * 20_000 + b"\n",
    "more_options.sh": b"swift rlhf " + b"--seed 1 " * 200_000 + b"\n",
    "ifs.sh": b"if true; then\n" * 20_000 + b"swift rlhf --seed 1\n",
    "exports.sh": b"export A=1\n" * 600_000 + b"swift rlhf --seed 1\n",
    "binary.sh": bytes(range(256)) * 400,
    "utf_16.sh": "swift rlhf --seed 1\n".encode("utf-16"),
    "quotes.sh": b"'" * 99_999,
    "substitutions.sh": b'"$(' * 50_000,
    "here.sh": b"<<A\n" * 60_000,
    "array.sh": b"A=(" + b"a" * 60_000 + b"'",
    "blanks.sh": b"A=$(" + b" " * 60_000 + b")\n",
    "redirections.sh": b">a" * 30_000,
    "programs.sh": b"A" + b"cli/" * 15_000 + b".py\n",
    "tests.sh": b"[" * 100_000,
    "bomb_without_blanks.yaml": BOMB.replace(", ", ",").encode(),
    "no_table.yaml": b"rlhf_type: grpo\ntrain: [1]\n",
    "no_variables.yaml": b"rlhf_type: grpo\nENV: [1]\n",
    "no_number.yaml": b"rlhf_type: grpo\ntrain: {gpus: many, seed: 1}\n",
    "no_nodes.yaml": b"rlhf_type: grpo\nnnodes: 0\ntrain: {gpus: 8, seed: 1}\n",
    "lists.yaml": b"- " * 30_000,
    "commands.sh": b"swift rlhf --seed 1\n" * 3_000,
}


@pytest.mark.parametrize("name", FILES)
def test_the_answer_is_a_line_in_a_moment(name, tmp_path, capsys):
    (tmp_path / name).write_bytes(FILES[name])
    started = time.process_time()
    assert command.check([name], quick=True, row_limit=0) == command.COULD_NOT_CHECK
    assert time.process_time() - started < 5
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("could not check: ")
    assert len(printed) <= 2
    assert max(map(len, printed)) < 400
    assert "check itself fails" not in printed[0]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["pipe.sh", "pipe.yaml", "pipe.json"])
def test_a_pipe_that_nobody_writes_to_is_not_waited_for(name, tmp_path, capsys):
    os.mkfifo(tmp_path / name)
    assert command.check([name], quick=True) == command.COULD_NOT_CHECK
    assert "no such " in capsys.readouterr().out


def test_many_words_and_values_that_double_take_a_moment():
    started = time.process_time()
    read_script("swift " * 10_000)
    (command,) = read_script("A=xx\n" + "A=$A$A\n" * 24 + 'swift rlhf --system "$A"').commands
    assert time.process_time() - started < 5
    assert len(written(command.words[1])) < 2**18


def test_an_array_that_doubles_and_a_deep_configuration_take_a_moment(capsys):
    started = time.process_time()
    with open("train.sh", "w") as file:
        file.write("X=(a b)\n" + 'X+=("${X[@]}" "${X[@]}")\n' * 30 + 'swift rlhf --a "${X[@]}"\n')
    assert command.check(["train.sh"], quick=True) == command.COULD_NOT_CHECK
    deep = ["--deepspeed", '{"a":' * 9000]
    assert command.check(["--rlhf_type", "grpo", *deep], quick=True, row_limit=0) == 2
    assert time.process_time() - started < 5
    assert "not JSON: " in capsys.readouterr().out


def test_a_word_that_is_no_file_name_is_no_traceback(capsys):
    assert command.check(["x" * 130_000], quick=True) == command.COULD_NOT_CHECK
    printed = capsys.readouterr().out
    assert len(printed) < 600
    assert "no such script" in printed
    words = ["--rlhf_type", "grpo", "--reward_funcs", "accuracy", "--model", "x" * 130_000]
    assert command.check(words, quick=True) == 1
    assert "not checked: memory" in capsys.readouterr().out


def test_long_values_are_cut_and_what_was_not_checked_is_short(capsys):
    words = ["--rlhf_type", "grpo", "--model", "x/" + "y" * 10_000, "--dataset", "/no/" + "z" * 10_000]
    assert command.check([*words, "--reward_funcs", "w" * 10_000], quick=True) == 2
    assert max(map(len, capsys.readouterr().out.splitlines())) < 700
    names = (
        "num_generations",
        "steps_per_generation",
        "generation_batch_size",
        "num_generations_eval",
        "loss_type",
    )
    unknown = " ".join(
        f'--{name} "$({name} -- "$(dirname $0)")"' for name in (*names, "delta", "beta", "epsilon")
    )
    with open("train.sh", "w") as file:
        file.write(f"swift rlhf --rlhf_type grpo --model $(cat model) {unknown}\n")
    command.check(["train.sh"], quick=True)
    last = capsys.readouterr().out.splitlines()[-1]
    assert len(last.partition("not checked: ")[2]) <= 160
    assert "more" in last
    assert "$(" not in last


def test_an_exception_of_ours_is_one_line_and_exit_code_3(capsys, monkeypatch):
    def fails(*_words, **_named):
        raise KeyError("gone")

    monkeypatch.setattr(inputs, "runs", fails)
    assert command.check(["--seed", "1"], quick=True) == command.COULD_NOT_CHECK
    assert capsys.readouterr().out.splitlines() == [
        "could not check: check itself fails: KeyError: 'gone'",
        "        -> report it",
    ]


def test_a_pipe_and_a_circle_of_links_are_no_scripts(tmp_path):
    os.mkfifo("pipe.sh")
    os.symlink("b.sh", "a.sh")
    os.symlink("a.sh", "b.sh")
    for name in ("pipe.sh", "a.sh", str(tmp_path)):
        assert command.check([name], quick=True) == command.COULD_NOT_CHECK
