"""A line of a dataset that is not JSON: one line with file and line number, in place of 90 of traceback."""

import pytest

import swift_grpo_ext
from swift_grpo_ext import testing
from swift_grpo_ext.compat.broken_line import broken_line

GOOD = '{"messages": [{"role": "user", "content": "1 + 1?"}], "solution": "2"}\n'


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        (b'{"messages": [\n', "is not JSON: Expecting value"),
        (b"[1, 2]\n", "is not a JSON object but list"),
        (b'{"text": "\xff"}\n', "is not JSON: 'utf-8' codec"),
        (b"[" * 100_000 + b"\n", "is nested too deeply"),
        (b'{"messages": "cut off', "is not JSON: Unterminated string"),
    ],
)
def test_the_first_broken_line_is_named(tmp_path, bad, what):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(GOOD.encode() + b"\n" + bad)
    error = broken_line(path)
    assert what in error.what
    assert error.where == f"{path}:3"


def test_what_is_not_broken_is_left_alone(tmp_path):
    whole = tmp_path / "rows.jsonl"
    whole.write_text(GOOD)
    other = tmp_path / "rows.csv"
    other.write_text("{")
    assert broken_line(whole) is broken_line(other) is broken_line(tmp_path / "gone.jsonl") is None


def test_a_run_ends_with_one_line(tiny_qwen, tmp_path, capsys):
    swift_grpo_ext.register()
    path = tmp_path / "rows.jsonl"
    path.write_text(GOOD * 3 + '{"messages": [}\n' + GOOD)
    with pytest.raises(SystemExit) as ended:
        testing.run_in_process(
            "rlhf", testing.grpo_arguments(tiny_qwen, path, tmp_path, reward_funcs="format")
        )
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert "the line is not JSON: Expecting value" in said
    assert f"[{path}:4] -> fix the line" in said
