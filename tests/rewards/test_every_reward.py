"""What holds for every reward of the catalogue."""

import ast
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swift_grpo_ext.rewards.catalogue import NAMES, all_rewards
from swift_grpo_ext.rewards.gold.columns import gold_completion
from tests.rewards.linear import assert_linear
from tests.rewards.loopback_judge import LoopbackJudge, always
from tests.rewards.rows import ROWS

REWARDS = all_rewards()
WITH_GOLD = [name for name in NAMES if REWARDS[name].gold]
# Math-Verify has no limit of its own off the main thread; its floods run under the pool's, in test_fuzz.
UNLIMITED = "ext_math"

PIECES = [
    *(
        "<think>",
        "</think>",
        "<answer>",
        "</answer>",
        "```json\n",
        "```",
        "\\boxed{",
        "}",
        "{",
        "[",
        "]",
        "(",
        ")",
    ),
    *(
        '"',
        "'",
        ",",
        ":",
        " ",
        "\n",
        "|",
        "-",
        "%",
        "A",
        "B.",
        "yes",
        "no",
        "click",
        "<td>",
        "<tr>",
        "</table>",
    ),
    *(
        "1",
        "0.5",
        "-3",
        "1e308",
        "1e999",
        "9**9**9",
        "99999999999999999999999",
        "NaN",
        "Infinity",
        "null",
        "true",
    ),
    *(
        '{"bbox_2d": [1, 2, 3, 4]}',
        "[10, 20, 110, 220]",
        "(5,5)",
        '"label"',
        '"score": 2',
        "00:12",
        "3/0",
        "1,234",
    ),
    *("你好", "第一行", "שלום", "مرحبا", "🐕", "\u202e", "\x00", "\ud800", "ａ１", "é", "½", "²"),
]
FLOODS = (
    "<answer><answer>",
    "[",
    "{",
    "[1,2,3,4],",
    "1 ",
    "1",
    "1,",
    "(1,",
    "A, ",
    "<td>a",
    "<td",
    "| a ",
    "\n- ",
    "\\boxed{",
)
soup = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)


@pytest.fixture(scope="module", autouse=True)
def _a_judge_to_ask():
    """A strict judge on the loopback interface, for the reward that asks one."""
    defaults = REWARDS["ext_judge"].function.__kwdefaults__
    before = dict(defaults)
    with LoopbackJudge(always(5)) as server:
        defaults.update(url=server.url, model="m")
        yield
    defaults.update(before)


def rows():
    return [(name, row) for name in NAMES for row in ROWS[name]]


@pytest.mark.parametrize("name", NAMES)
def test_rows_cover_the_catalogue(name):
    assert ROWS[name]


@pytest.mark.parametrize(("name", "row"), [(name, row) for name, row in rows() if name in WITH_GOLD])
def test_a_gold_answer_scores_the_maximum(name, row):
    reward = REWARDS[name]
    assert reward(gold_completion(reward, row), row) == pytest.approx(reward.high, abs=1e-9)


@pytest.mark.parametrize("name", WITH_GOLD)
@pytest.mark.parametrize(
    "gold", [None, "", [], "\x00", "N/A", {"nonsense": object}, [[]], float("nan"), "x" * 40_000]
)
def test_missing_or_broken_gold_is_unscored_or_scored_never_an_error(name, gold):
    reward = REWARDS[name]
    for column in reward.gold:
        outcome = reward.outcome("<answer>1</answer>", {column: gold})
        assert outcome.score is not None or outcome.reason
    assert reward.outcome("<answer>1</answer>", {}).reason.startswith(("no gold", "parameter"))


@pytest.mark.parametrize("name", WITH_GOLD)
def test_no_answer_scores_the_minimum(name):
    for text in ("", "<think>", "<answer>", "<answer></answer>"):
        assert REWARDS[name](text, ROWS[name][0]) == REWARDS[name].low


@pytest.mark.parametrize("name", NAMES)
def test_whatever_a_model_writes_is_scored_within_the_range(name):
    reward = REWARDS[name]

    @settings(max_examples=40)
    @given(
        st.one_of(soup, soup.map("<think>x</think><answer>{}</answer>".format), st.text(max_size=200)),
        st.sampled_from(ROWS[name]),
    )
    def check(text, row):
        if name != UNLIMITED or "**" not in text:
            assert reward.low <= reward(text, row) <= reward.high

    check()


@pytest.mark.parametrize("name", NAMES)
def test_random_bytes(name):
    noise = random.Random(name)
    for size in (1, 100, 10_000):
        text = noise.randbytes(size).decode("utf-8", errors="surrogateescape")
        for row in ROWS[name]:
            score = REWARDS[name](f"<answer>{text}</answer>", row)
            assert REWARDS[name].low <= score <= REWARDS[name].high


@pytest.mark.parametrize("name", [name for name in NAMES if name != UNLIMITED])
def test_floods_are_scored_in_linear_time(name):
    check_floods(name, FLOODS, 30_000)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name != UNLIMITED])
def test_more_floods_are_scored_in_linear_time(name):
    for size in (30_000, 1_000_000):
        check_floods(name, {*PIECES, *FLOODS}, size)


def check_floods(name, pieces, size):
    reward, row = REWARDS[name], ROWS[name][0]
    for piece in pieces:
        for form in ("{}", "<answer>{}</answer>"):
            assert_linear(lambda text, form=form: reward(form.replace("{}", text), row), piece, size)
            flood = form.replace("{}", piece * (size // len(piece)))
            assert reward.low <= reward(flood, row) <= reward.high


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("junk", [None, 7, b"bytes", ["list"]])
def test_a_completion_that_is_no_text_is_an_empty_one(name, junk):
    row = ROWS[name][0]
    assert REWARDS[name](junk, row) == REWARDS[name]("", row)


def test_a_completion_of_messages_is_its_last_one():
    row = {"solution": "B"}
    for content in ("B", [{"type": "text", "text": "B"}]):
        turns = [{"role": "assistant", "content": "A"}, {"role": "assistant", "content": content}]
        assert REWARDS["ext_choice"](turns, row) == 1.0


def _test_names():
    for path in Path(__file__).parent.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                yield node.name


@pytest.mark.parametrize("name", NAMES)
def test_every_attack_on_the_card_names_a_test_that_exists(name):
    import re

    gaming = REWARDS[name].__doc__.split("Gaming:")[1].split("Frame:")[0]
    named = re.findall(r"\((test_\w+)\)|^\s+\((test_\w+)\)", " ".join(gaming.split()))
    attacks = gaming.count("\n        - ")
    tests = {first or second for first, second in named}
    assert len(tests) >= 1
    assert len(named) >= attacks
    assert tests <= set(_test_names())
