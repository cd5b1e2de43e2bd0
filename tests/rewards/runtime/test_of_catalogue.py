import asyncio
import json
import threading
from types import SimpleNamespace

import pytest

from swift_grpo_ext.errors import SettingsError
from swift_grpo_ext.rewards.catalogue import get_reward
from swift_grpo_ext.rewards.runtime import ledger as ledger_module
from swift_grpo_ext.rewards.runtime.ledger import drain
from swift_grpo_ext.rewards.runtime.of_catalogue import OfCatalogue
from swift_grpo_ext.rewards.runtime.rules import RewardTable
from tests.rewards.jobs import a_reward, broken

TOWER = "<answer>$9^{9^{9^{9}}}$</answer>"


@pytest.fixture(scope="module")
def pools():
    """Pools of rewards, which tests share."""
    made = {}
    yield made
    for pool in made.values():
        pool.close()


@pytest.fixture
def score(pools):
    """Scores and report of a reward, in processes with a short limit where it needs such."""

    def run(name, completions, table=None, arguments=None, **columns):
        rules = RewardTable.model_validate(table or {})
        reward = get_reward(name) if isinstance(name, str) else name
        drain(reward.name)
        scored = OfCatalogue(reward, arguments, rules)
        if scored.limit:
            scored.limit = 4.0
            key = (reward.name, str(scored.parameters))
            scored.pool = pools.setdefault(key, scored.pool)
        return scored(completions, **columns), drain(reward.name)

    return run


def test_a_tower_of_powers_is_wrong(score):
    completions = ["<answer>$2$</answer>", TOWER, "<answer>$9**9**9$</answer>", "<answer>$3$</answer>"]
    scores, report = score("ext_math", completions, solution=["2"] * 4)
    assert scores == [1.0, 0.0, 0.0, 0.0]
    assert report.failures == 0
    assert report.completions == 4


def test_process_rewards_give_the_same_scores_as_in_place(score):
    table = "| a | b |\n|--|--|\n| 1 | 2 |"
    completions = [table, "| a | b |", "", "nothing"]
    scores, _ = score("ext_table", completions, solution=[table] * 3 + [None])
    reward = get_reward("ext_table")
    assert scores == [
        reward(text, {"solution": gold}) for text, gold in zip(completions, [table] * 3 + [None], strict=True)
    ]


def test_processes_start_when_they_are_needed():
    assert not OfCatalogue(get_reward("ext_math"), table=RewardTable()).pool._process


def test_rows_that_cannot_be_scored_are_counted_and_the_first_is_named(capsys, monkeypatch, score):
    monkeypatch.setattr(ledger_module, "_printed", set())
    messages = [[{"role": "user", "content": "How many?"}]] * 3
    scores, report = score(
        "ext_count", ["3", "3", "3"], solution=[3, None, None], messages=messages, images=[["a.png"]] * 3
    )
    assert scores == [1.0, None, None]
    assert sum(report.unscored.values()) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "no gold in column solution or count or answer" in lines[0]
    assert "completion 1 of the batch, image 'a.png', question 'How many?'" in lines[0]


def test_a_column_with_the_name_of_a_parameter_is_not_one_and_that_is_said(capsys, monkeypatch, score):
    monkeypatch.setattr(ledger_module, "_printed", set())
    rows = {"solution": [[0, 0, 9, 9]], "frame": [17], "gold_frame": ["norm1000"]}
    assert score("ext_iou", ["[0, 0, 9, 9]"], **rows)[0] == [1.0]
    (line,) = capsys.readouterr().err.splitlines()
    assert "'ext_iou' does not read column 'gold_frame': gold_frame=... goes behind its name" in line
    table = {"rewards": {"ext_iou": {"parameters": {"gold_frame": "pixel_resized"}}}}
    assert score("ext_iou", ["[0, 0, 9, 9]"], table, **rows)[0] == [1.0]
    assert capsys.readouterr().err == ""


def test_a_reward_at_fault_is_a_failure_with_its_traceback(score):
    scores, report = score(a_reward(broken), ["x", "y"])
    assert scores == [None, None]
    assert report.failures == 2
    assert "KeyError" in report.first.what
    assert "Traceback" in report.first.details


def test_parameters_come_from_table_host_and_defaults_in_this_order(score):
    arguments = SimpleNamespace(repetition_n_grams=2, repetition_max_penalty=-0.5)
    loop = ["no no no no"] * 2
    assert score("ext_repetition", loop)[0] == [-0.5, -0.5], "one of two trigrams stood before"
    assert score("ext_repetition", loop, arguments=arguments)[0] == pytest.approx([-1 / 3, -1 / 3])
    table = {"rewards": {"ext_repetition": {"parameters": {"ngram": 1}}}}
    assert score("ext_repetition", loop, table, arguments)[0] == pytest.approx([-0.375, -0.375])


def test_routing_and_gold(score):
    table = {"rewards": {"ext_choice": {"tasks": ["choice", "quiz"], "gold": "letter"}}}
    good = "<think>x</think><answer>B</answer>"
    columns = {"task": ["choice", "quiz", "ocr", None], "letter": ["B"] * 4, "solution": ["A"] * 4}
    assert score("ext_choice", [good, "A", good, good], table, **columns)[0] == [1.0, 0.0, None, None]


@pytest.mark.parametrize(
    ("table", "what"),
    [
        ({"rewards": {"ext_iou": {"parameters": {"frame": "pixels"}}}}, "Input should be 'pixel_resized'"),
        ({"rewards": {"ext_iou": {"parameters": {"frames": "norm1"}}}}, "unknown parameter"),
        ({"rewards": {"ext_iou": {"gates": "ext_format"}}}, "not permitted at rewards.ext_iou.gates"),
        ({"reward": {"ext_iou": {}}}, "not permitted at reward"),
        ({"rewards": {"mine": {"parameters": {"a": 1}}}}, "not of the catalogue"),
        ({"rewards": {"ext_iou": {"tasks": "a"}}}, "should be a valid tuple at rewards.ext_iou.tasks"),
        ({"rewards": {"ext_iuo": {"tasks": ["a"]}}}, "unknown reward 'ext_iuo', did you mean 'ext_iou'"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(table, what):
    from swift_grpo_ext.rewards.runtime.rules import load_table

    with pytest.raises(SettingsError, match=what):
        load_table(json.dumps(table))


def test_the_gold_column_of_the_table_is_the_only_gold(capsys, monkeypatch, score):
    monkeypatch.setattr(ledger_module, "_printed", set())
    table = {"rewards": {"ext_wer": {"gold": "transcription"}}}
    columns = {"transcription": ["A", None], "text": ["B", "B"], "solution": ["B", "B"]}
    assert score("ext_wer", ["A", "B"], table, **columns)[0] == [1.0, None]
    assert score("ext_wer", ["B"], table, solution=["B"])[0] == [None]
    assert "no row has the column 'transcription' of the reward table" in capsys.readouterr().err


def test_tasks_of_rows_may_be_numbers(score):
    table = {"rewards": {"ext_choice": {"tasks": ["1"]}}}
    scores, _ = score("ext_choice", ["B"] * 3, table, solution=["B"] * 3, task=[1, 2, None])
    assert scores == [1.0, None, None]


def test_rows_without_the_task_column_are_told(capsys, monkeypatch, score):
    monkeypatch.setattr(ledger_module, "_printed", set())
    score("ext_choice", ["B"], {"rewards": {"ext_choice": {"tasks": ["a"]}}}, solution=["B"], kind=["a"])
    assert "no row has the column 'task' of the reward table" in capsys.readouterr().err


def test_tables_come_from_text_or_file(tmp_path):
    from swift_grpo_ext.rewards.runtime.rules import load_table

    path = tmp_path / "table.json"
    path.write_text('{"rewards": {"ext_iou": {"parameters": {"frame": "norm1000"}, "tasks": ["box"]}}}')
    rule = load_table(str(path)).rule("ext_iou")
    assert rule.parameters == {"frame": "norm1000"}
    assert rule.tasks == ("box",)
    assert load_table(str(path)).rule("ext_ocr").parameters == {}
    with pytest.raises(SettingsError, match="no such file"):
        load_table("missing.json")
    with pytest.raises(SettingsError, match="not JSON"):
        load_table("{")
    with pytest.raises(SettingsError, match="no such file"):
        load_table("[" * 10_000)


def test_another_frame_is_diagnosed_not_guessed(capsys, monkeypatch, score):
    monkeypatch.setattr(ledger_module, "_printed", set())
    sizes = [[{"original": [640, 480], "resized": [1288, 966]}]] * 4
    golds = [[64 * k, 48, 64 * k + 160, 240] for k in range(1, 5)]
    answers = [
        str([round(v * s) for v, s in zip(gold, [1000 / 640, 1000 / 480] * 2, strict=True)]) for gold in golds
    ]
    columns = {"solution": golds, "image_sizes": sizes}
    scores, _ = score("ext_iou", answers, **columns)
    assert max(scores) < 0.5
    (line,) = capsys.readouterr().err.splitlines()
    assert "the answers look like norm1000 and the gold like pixel_original" in line
    right = {"rewards": {"ext_iou": {"parameters": {"frame": "norm1000", "gold_frame": "pixel_original"}}}}
    assert min(score("ext_iou", answers, right, **columns)[0]) > 0.95
    assert capsys.readouterr().err == ""


def test_it_works_off_the_main_thread_and_inside_a_running_loop(score):
    found = []
    thread = threading.Thread(target=lambda: found.append(score("ext_math", ["$2$"], solution=["2"])[0]))
    thread.start()
    thread.join(60)

    async def inside():
        return score("ext_math", ["$2$"], solution=["2"])[0]

    assert found == [[1.0]] == [asyncio.run(inside())]
