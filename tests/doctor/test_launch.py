"""Launch scripts as people write them, read without being run."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swift_grpo_ext.doctor.check.script import read_script
from swift_grpo_ext.doctor.check.unknown import PLUGIN, Unknown, written
from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.findings import NotKnownError


def first(text, subcommand="rlhf", **environ):
    return next(one for one in read_script(text, environ).commands if one.subcommand == subcommand)


def rlhf(text, **environ):
    return list(first(text, **environ).words)


@pytest.mark.parametrize(
    "text",
    [
        "swift rlhf --a 1 --b 'x y'",
        "swift rlhf \\\n  --a 1 \\\n  --b 'x y'\n",
        "nohup swift rlhf --a 1 --b 'x y' > log.txt 2>&1 &",
        "swift rlhf --a 1 --b 'x y' 2>&1 | tee log.txt",
        'if true; then\n  time swift rlhf --a 1 --b "x y"\nfi',
        "env X=1 /opt/bin/swift rlhf --a 1 --b 'x y' && echo done",
        "python -m swift.cli.rlhf --a 1 --b 'x y'",
        "torchrun --nproc_per_node=8 --nnodes 2 swift/cli/rlhf.py --a 1 --b 'x y'",
        "ARGS=(\n  --a 1  # one\n  --b 'x y'\n)\nswift rlhf \"${ARGS[@]}\"",
        "A='--a 1'\nswift rlhf $A --b 'x y'",
        "B='x y'; swift rlhf --a ${N:-1} --b \"$B\"",
        "swift rlhf --a 1 --b 'x'\\\n\" y\"",
        "python -m swift.cli.main rlhf --a 1 --b 'x y'",
        "cat > c.yaml <<EOF\nswift rlhf --no\nEOF\nswift rlhf --a 1 --b 'x y'",
        "swift rlhf --a 1 --b 'x y'  # the last\n# --c 2",
        "swift rlhf --a 1 --b 'x y' \\",
        "$ swift rlhf --a 1 --b 'x y'",
    ],
)
def test_the_words_are_those_that_the_shell_would_pass(text):
    assert rlhf(text) == ["--a", "1", "--b", "x y"]
    assert read_script(text).cuts == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("swift rlhf --a 1 \\\n  # why\n  --b 2", 3),
        ("swift rlhf --a 1 \\  # why\n  --b 2", 2),
        ("swift rlhf --a 1  # why \\\n  --b 2", 2),
        ("swift rlhf --a 1 \\ \n  --b 2", 2),
        ("swift rlhf \\\n --a 1\n  --b 2", 3),
        ("swift rlhf --a 1 \\\n\n  --b 2", 3),
    ],
    ids=["comment", "comment behind", "comment within", "blank", "no backslash", "empty line"],
)
def test_a_command_that_ends_too_early_is_read_as_it_was_meant(text, line):
    assert read_script(text).cuts == [line]
    assert rlhf(text) == ["--a", "1", "--b", "2"]


def test_lines_of_windows_are_read():
    assert rlhf("swift rlhf --a 1 \\\r\n  --b 2\r\n") == ["--a", "1", "--b", "2"]


def test_a_hash_inside_a_word_is_no_comment():
    assert rlhf("swift rlhf --dataset a.jsonl#100 --b 2") == ["--dataset", "a.jsonl#100", "--b", "2"]


def test_what_is_not_known_is_a_value():
    words = rlhf(
        'swift rlhf --a $UNSET --b "$(date)" --c ${D:?} "$@" ${E:-$UNSET} --d=$UNSET/x --e "$1" --f $((1 + 2))'
    )
    texts = ["$UNSET", "$(date)", "${D:?}", "$@", "$UNSET", "--d=$UNSET/x", "$1", "$((1 + 2))"]
    unknown = [word for word in words if isinstance(word, Unknown)]
    assert list(map(written, unknown)) == texts
    assert [word.many for word in unknown] == [True, False, True, True, True, False, False, True]
    assert rlhf("swift rlhf --a $UNSET", UNSET="3") == ["--a", "3"]
    assert [word.many for word in rlhf('ARGS="--a 1 --b $UNSET --c 2"; swift rlhf $ARGS')] == [True]


def test_an_unknown_value_decides_nothing():
    value = Unknown("$N")
    for computed in (value * 8 > 16, 3 - value, value == value, value.strip().isdecimal(), value["stage"]):
        assert isinstance(computed, Unknown)
    for decide in (bool, int, str, len, list, hash, "{}".format, lambda known: known in ("a", "b")):
        with pytest.raises(NotKnownError, match=r"\$N"):
            decide(value)


@pytest.mark.parametrize("word", ["-u NPROC_PER_NODE", "-uNPROC_PER_NODE", "--unset=NPROC_PER_NODE"])
def test_a_command_that_takes_variables_back_is_not_followed(word):
    """It was taken for set: two ranks for one GPU, an error that no run had."""
    text = f"export NPROC_PER_NODE=2\nenv {word} CUDA_VISIBLE_DEVICES=0 swift rlhf --a 1"
    assert read_script(text).commands == []


def test_a_name_that_is_no_longer_exported_is_not_known_and_writes_no_file():
    command = first("export NPROC_PER_NODE=2 A=1\nexport -n NPROC_PER_NODE\nswift rlhf --a 1")
    assert isinstance(command.environ["NPROC_PER_NODE"], Unknown)
    assert command.set_by == "export"
    assert not command.makes_files


def test_variables_that_are_not_exported_are_named():
    text = "MAX_PIXELS=1\nexport NNODES=1\nA=2 swift rlhf --a 1"
    command = first(text, "rlhf")
    assert command.unexported == {"MAX_PIXELS"}
    assert command.environ == {"NNODES": "1", "A": "2"}
    assert first("set -a\nMAX_PIXELS=1\nswift rlhf").unexported == frozenset()
    blank = first("MAX_PIXELS=1 \\\nA=2 \\ \nNNODES=1 \\\nTEXT='a b' \\\nswift rlhf --a 1")
    assert blank.unexported == {"MAX_PIXELS", "A"}
    assert blank.environ == {"NNODES": "1", "TEXT": "a b"}


def test_launchers_and_several_commands():
    launch = read_script(
        "swift rollout --model x &\ntorchrun --nproc-per-node 4 -m swift.cli.rlhf --a 1\nswift rlhf --a 2\n"
    )
    assert [command.subcommand for command in launch.commands] == ["rollout", "rlhf", "rlhf"]
    assert launch.commands[1].environ["NPROC_PER_NODE"] == "4"


def test_ranks_of_torchrun_by_its_module():
    environ = first(
        "python -m torch.distributed.run --nproc_per_node 8 --nnodes=2 -m swift.cli.rlhf --a 1"
    ).environ
    assert (environ["NPROC_PER_NODE"], environ["NNODES"]) == ("8", "2")


@pytest.mark.parametrize(
    "launcher",
    [
        "accelerate launch --config_file a.yaml -m swift.cli.rlhf",
        "accelerate launch --num_machines 2 --num_processes 16 -m swift.cli.rlhf",
        "deepspeed swift/cli/rlhf.py",
        "deepspeed --num_gpus=8 --num_nodes 2 swift/cli/rlhf.py",
        "srun --ntasks 8 python -m swift.cli.rlhf",
    ],
)
def test_ranks_of_other_launchers_are_not_known(launcher):
    environ = first(f"export NPROC_PER_NODE=3\n{launcher} --a 1").environ
    assert isinstance(environ["NPROC_PER_NODE"], Unknown)
    assert isinstance(environ["NNODES"], Unknown)


def test_what_is_no_plain_bash_is_named():
    for text in ("swift rlhf --a 'x\n", "cat > c.yaml <<EOF\nswift rlhf --a 1\n"):
        with pytest.raises(SwiftGrpoExtError, match=r"not plain bash: .* \[line 2\]"):
            read_script(f"date\n{text}")


def test_an_unknown_argument_of_the_launcher_may_be_any_number_of_ranks():
    several = "D=(--nproc_per_node 8)\nif true; then D+=(--nnodes 2); fi\n"
    for text in ('D="--nproc_per_node $N"\n', several, ""):
        environ = first(f'{text}torchrun $D "${{D[@]}}" -m swift.cli.rlhf --a 1').environ
        assert isinstance(environ["NPROC_PER_NODE"], (Unknown, str)), text
        assert isinstance(environ["NNODES"], Unknown), text
    assert first("torchrun -m swift.cli.rlhf --a 1").environ["NPROC_PER_NODE"] == "1"


@pytest.mark.parametrize("printer", ["echo", "printf '%s '", "which", "log"])
def test_what_prints_a_command_does_not_start_it(printer):
    launch = read_script(f'CMD=(swift rlhf --a 1)\n{printer} "${{CMD[@]}}"\nNPROC_PER_NODE=2 "${{CMD[@]}}"\n')
    (command,) = launch.commands
    assert command.environ["NPROC_PER_NODE"] == "2"


def test_python_starts_one_process_of_a_module():
    assert first("NPROC_PER_NODE=8 python3 -m swift.cli.rlhf --a 1").is_single
    for text in (
        "swift rlhf --a 1",
        "python -m swift.cli.main rlhf --a 1",
        "torchrun -m swift.cli.rlhf --a 1",
    ):
        assert not first(text).is_single


def test_a_sourced_file_may_set_anything_and_is_named():
    launch = read_script("N=1\nsource ./ranks.env\n. ~/.bashrc\nswift rlhf --a ${A:-1} --n $N")
    (command,) = launch.commands
    assert command.set_by == "source"
    assert isinstance(command.words[1], Unknown)
    assert isinstance(command.words[3], Unknown)
    assert first(". ~/.bashrc\nswift rlhf").set_by == ""


def test_the_plugin_path_is_known_in_every_spelling():
    for spelling in ('"$(swift-grpo-ext path)"', "$(swift-grpo-ext path all)", "`swift-grpo-ext path`"):
        assert rlhf(f"swift rlhf --external_plugins {spelling}")[-1] == PLUGIN
    assert rlhf('P="$(swift-grpo-ext path)"\nswift rlhf --external_plugins $P') == [
        "--external_plugins",
        PLUGIN,
    ]


@given(st.text(alphabet="ab \\\n#'\"$(){}`=;&|<>-x", max_size=60))
def test_no_text_breaks_the_reader(text):
    with suppress(SwiftGrpoExtError):
        read_script(text + "\nswift rlhf --a 1")


def test_the_folder_of_a_command_behind_a_cd_is_not_known():
    for text in ("cd a", "cd $ELSEWHERE", "if true; then cd /tmp; fi", 'cd "$(dirname "$0")"\ncd -'):
        assert first(f"{text}\nswift rlhf --a 1").folders == (), text
    assert first('cd "$(dirname "$0")"\nswift rlhf --a 1').folders != ()
    assert first("swift rlhf --a 1\ncd a").folders != ()


@pytest.mark.parametrize(
    "text",
    [
        "docker run img swift rlhf --a 1",
        "bash -c 'swift rlhf --a 1'",
        "bash <<EOF\nswift rlhf --a 1\nEOF",
        'CMD="swift rlhf --a 1"\neval "$CMD"',
        "./train.sh 8",
        "torchrun --nproc_per_node 2 swift rlhf --a 1",
        "python -m swift rlhf --a 1",
    ],
)
def test_what_is_not_followed_is_no_command_of_the_script(text):
    assert read_script(text).commands == []


@pytest.mark.parametrize(
    "setter",
    [
        "f() { N=2; }\nf",
        "function f { N=2; }\nf",
        "if [ -d x ]; then N=2; fi",
        "[ -d x ] && N=2",
        "[ -d x ] &&\n  N=2",
        "read -r N",
        "for N in 2 3; do true; done",
        "((N++))",
        "( N=2; true )",
        "let N=2",
        "case $1 in\n  a) N=2 ;;\nesac",
        "unset N",
        "declare N=2",
    ],
)
def test_what_is_set_in_another_way_is_not_known_behind_it(setter):
    assert isinstance(rlhf(f"N=1\n{setter}\nswift rlhf --a $N")[1], Unknown)
    assert rlhf(f"{setter}\nswift rlhf --a 1 ") == ["--a", "1"]


def test_a_name_that_is_exported_without_a_known_value_is_not_known():
    """It was taken for not set: one rank, where the script had set eight."""
    text = ': "${NPROC_PER_NODE:=8}"\nexport NPROC_PER_NODE MAX_PIXELS\nMAX_PIXELS=1\nswift rlhf --a 1'
    command = first(text)
    assert isinstance(command.environ["NPROC_PER_NODE"], Unknown)
    assert command.environ["MAX_PIXELS"] == "1"


def test_what_is_set_behind_a_branch_is_known():
    text = 'if [ -z "$1" ]; then\n  echo usage\n  exit 1\nfi\n[ -f x ] || { echo no; exit 1; }\nN=2\nswift rlhf --a $N'
    assert rlhf(text) == ["--a", "2"]


def test_the_elements_of_an_array_that_is_changed_are_not_known():
    assert [word.many for word in rlhf('A=(--a 1)\nA[1]=2\nswift rlhf "${A[@]}"')] == [True]


def test_a_pattern_of_case_is_no_option_that_is_cut_off():
    launch = read_script("case $1 in\n  --a) swift rlhf --a 1 ;;\n  --b) swift rlhf --b 1 ;;\nesac")
    assert [len(command.words) for command in launch.commands] == [2, 2]
    assert launch.cuts == []
