"""Every turn of a trajectory is compared: what the trainer's row holds of it, and runs with images of tools."""

import re
from pathlib import Path

import pytest
from PIL import Image
from swift.infer_engine.protocol import (
    ChatCompletionResponse,
    ChatCompletionResponseChoice,
    ChatMessage,
    RolloutOutput,
    UsageInfo,
)
from swift.rollout.multi_turn import multi_turns

from swift_grpo_ext import testing
from swift_grpo_ext.trainer.engine.check import claims_of
from swift_grpo_ext.trainer.engine.prompts import first_difference, lost_image
from swift_grpo_ext.trainer.engine.turns import PLACES, longest_prompt, name_of, places, rewritten, turn_at
from swift_grpo_ext.trainer.grpo import GRPOTrainer
from swift_grpo_ext.trainer.samples import Claim
from tests.trainer.crops import Crops
from tests.trainer.test_engine_check import FIRST, run, verdicts

IMAGE = 9
QUESTION = [1, IMAGE, IMAGE, 2]
MORE = [3, IMAGE, 4]
ROW = [*QUESTION, 11, 12, *MORE, 21, 22, 23]
TRAINED = [token > 10 for token in ROW]
TURNS = [
    Claim(QUESTION, [11, 12], [-1.0, -2.0]),
    Claim([*QUESTION, 11, 12, *MORE], [21, 22, 23], [-3.0, -4.0]),  # the last one is not told
]


def found(claims, ids=ROW, trained=TRAINED):
    return [(place.turn, place.at, place.logp) for place in places(claims, ids, trained, {IMAGE})]


BOTH = [(1, 4, -1.0), (1, 5, -2.0), (2, 9, -3.0), (2, 10, -4.0)]


def test_sampled_tokens_of_each_turn_are_found_in_the_row():
    assert found(TURNS) == BOTH


def test_images_of_one_token_each_are_the_same_context():
    compact = [token for n, token in enumerate(QUESTION) if n != 1]
    assert found([Claim(compact, [11, 12], [-1.0, -2.0])], ROW, TRAINED) == BOTH[:2]


def test_without_prompts_turns_are_found_where_all_that_is_trained_on_was_sampled():
    told = [Claim((), claim.tokens, claim.logps) for claim in TURNS]
    assert found(told) == BOTH
    assert found([told[1], told[0]]) == [], "not in this order"
    assert found([Claim((), [11, 99], [-1.0, -2.0])]) == BOTH[:1], "of one turn, up to what is another token"


def test_without_prompts_a_turn_is_found_behind_the_end_of_one_that_was_cut_off():
    """InternVL's engine tells no ids; ``<|im_end|>`` is put behind a turn and trained on."""
    ended = [*QUESTION, 11, 12, 30, *MORE, 21, 22, 23]
    told = [Claim((), claim.tokens, claim.logps) for claim in TURNS]
    (first, second, third, fourth) = BOTH
    later = [(turn, at + 1, logp) for turn, at, logp in (third, fourth)]
    assert found(told, ended, [token > 10 for token in ended]) == [first, second, *later]


def test_a_turn_that_is_cut_is_compared_up_to_the_cut():
    cut = [Claim(QUESTION, [11, 12, 13], [-1.0, -2.0, -9.0]), TURNS[1]]
    assert found(cut) == BOTH
    assert rewritten(cut) == []


def test_a_prompt_longer_than_the_last_one_is_rewritten_too():
    longer = Claim([1, *[5] * 20], [11, 12], [-1.0, -2.0])
    assert rewritten([longer, TURNS[1]]) == [1]


def test_a_turn_whose_history_is_rewritten_is_left_out():
    forgotten = [Claim([1, 5, 2], [11, 12], [-1.0, -2.0]), TURNS[1]]
    assert found(forgotten) == BOTH[2:]
    assert rewritten(forgotten) == [1]
    assert rewritten(TURNS) == []


def test_a_masked_prefix_is_part_of_the_prompt():
    prefixed = [*QUESTION, 5, 11, 12]
    mask = [False] * 5 + [True] * 2
    assert found([Claim([*QUESTION, 5], [11, 12], [-1.0, -2.0])], prefixed, mask) == [
        (1, 5, -1.0),
        (1, 6, -2.0),
    ]


def test_an_empty_turn_ends_what_prompts_can_show():
    empty = [TURNS[0], Claim([*QUESTION, 11, 12, *MORE], [], []), Claim([1], [5], [-1.0])]
    assert longest_prompt(empty) is empty[1].prompt
    assert longest_prompt(TURNS) is TURNS[1].prompt


def test_of_a_hundred_turns_each_is_looked_at():
    row, claims = [], []
    for turn in range(100):
        row += [1, 2]
        claims.append(Claim(list(row), [11, 12, 13], [-float(turn)] * 3))
        row += [11, 12, 13]
    seen = places(claims, row, [token > 10 for token in row], ())
    assert [place.turn for place in seen] == list(range(1, 101))
    assert len(places(claims[:1], row[:5], [False] * 2 + [True] * 3, ())) == 3
    long = list(range(10, 1010))
    (*_, last) = of_one = places([Claim([1], long, [-1.0] * 1000)], [1, *long], [False] + [True] * 1000, ())
    assert (len(of_one), last.number) == (PLACES, 999)


def test_a_scheduler_in_a_server_tells_the_last_prompt_and_the_tokens_of_all_turns():
    content = [{"logprob": -3.0}, {"logprob": -4.0}, {"logprob": -5.0}]
    message = ChatMessage(role="assistant", content="")
    choice = ChatCompletionResponseChoice(0, message, "stop", {"content": content}, [21, 22, 23])
    answer = ChatCompletionResponse("model", [choice], UsageInfo(0, 0, 0), prompt_token_ids=TURNS[1].prompt)
    told = claims_of(RolloutOutput(response=answer))
    assert [(claim.tokens, claim.logps) for claim in told] == [([21, 22, 23], [-3.0, -4.0, -5.0])]
    told = claims_of(
        RolloutOutput(
            response=answer,
            response_token_ids=[[5, 11, 12], [21, 22, 23]],  # 5 is a masked prefix
            response_loss_mask=[[0, 1, 1], [1, 1, 1]],
            rollout_logprobs=[[-1.0, -2.0], [-3.0, -4.0, -5.0]],
        )
    )
    assert [claim.prompt for claim in told] == [(), TURNS[1].prompt]
    assert found(told) == [*BOTH, (2, 11, -5.0)]


MESSAGES = [{"role": role} for role in ("system", "user", "assistant", "tool", "assistant")]


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (0, "turn 1 (messages 0 to 1, user)"),
        (4, "turn 1 (message 2, assistant)"),
        (6, "turn 2 (message 3, tool)"),
        (9, "turn 2 (message 4, assistant)"),
    ],
)
def test_a_place_is_named_by_turn_and_message(place, words):
    turn = turn_at(place, TURNS)
    assert name_of(*turn, TURNS, MESSAGES) == words
    assert name_of(1, True, TURNS[:1], MESSAGES) == ""
    assert name_of(*turn, TURNS, MESSAGES[:3]) == words.split(" (")[0], "two turns in one message"


def test_the_first_difference_is_a_word_or_else_an_image():
    assert first_difference([*QUESTION, 5], ROW, {IMAGE}) == 4
    assert first_difference([1, IMAGE, 2, 11, 12, 3], ROW, {IMAGE}) == 2


def test_an_image_that_one_side_has_alone_is_named():
    crop = [(640, 480), (64, 48)]
    assert lost_image([crop[:1], crop], 2) == ""
    assert lost_image([None, None], 2) == ""
    assert "in turn 2 the engine saw image 2 (64 x 48 pixels), which the trainer does not" in lost_image(
        [crop[:1], crop], 1
    )
    assert "image 2 of the row was never seen by the engine, which had 1 in turn 3" in lost_image(
        [crop[:1]] * 3, 2
    )


class Forgetful(Crops):
    """Tells the next turn another question than the last one saw."""

    def step(self, infer_request, response_choice, current_turn):
        infer_request.messages[0]["content"] += " Think again."
        return super().step(infer_request, response_choice, current_turn)


class Drawing(Crops):
    """Draws on the picture that the turn before saw, and shows it again."""

    def step(self, infer_request, response_choice, current_turn):
        if current_turn == 1:
            with Image.open(infer_request.images[0]) as picture:
                canvas = picture.convert("RGB")
        else:
            canvas = infer_request.images[-1]
            canvas.paste((255, 0, 0), (0, 0, 20, 20))
        infer_request.images = [*infer_request.images, canvas]
        infer_request.messages.append({"role": "user", "content": "<image>And now?"})
        return {"infer_request": infer_request, "rollout_infos": {"images": list(infer_request.images)}}


@pytest.fixture
def trained(tiny_qwen, digits, tmp_path, monkeypatch):
    """`trained(fault)`: verdicts of a run of three turns with an image each."""

    def trained(fault="", scheduler=Crops, **overrides):
        monkeypatch.setitem(multi_turns, "crops", scheduler)
        turns = {"multi_turn_scheduler": "crops", "max_turns": 3, "max_length": 1024, "temperature": 0.9}
        return run(tiny_qwen, digits, tmp_path / "run", monkeypatch, fault, **{**turns, **overrides})

    return trained


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("temperature", "samples at temperature 0.3, the trainer at 0.9"),
        ("another question", "in turn 3 (message 5, user): token"),
        ("image lost", "image 2 of the row was never seen by the engine, which had 1 in turn 3"),
        ("image added", "in turn 3 the engine saw image 4"),
        (
            "ids mixed",
            "in turn 1 (messages 0 to 1, user): image 1 is one token in the engine and 4 in the trainer",
        ),
        ("temperature@2", "samples at temperature 0.3, the trainer at 0.9"),
        ("another question@2", "in turn 2 (message 3, user): token"),
        ("image lost@2", "in turn 2 the engine saw 1 of 2 images (row ("),
        (
            "system@2",
            "the system prompt differs (--system, or a default of the template on one side), as turn 2 saw it",
        ),
    ],
)
def test_a_fault_of_a_later_turn_is_named(fault, words, trained):
    verdicts = trained(fault, **FIRST)
    assert verdicts, "nothing was said"
    assert words in verdicts[0]["text"]


@pytest.mark.parametrize(
    "overrides", [{}, pytest.param({"torch_dtype": "bfloat16", "bf16": True}, marks=pytest.mark.slow)]
)
def test_healthy_turns_with_images_are_compared_and_silent(overrides, trained, tmp_path, monkeypatch):
    modes = []
    ask = GRPOTrainer._engine_infer

    def noted(trainer, *args, **kwargs):
        modes.append(trainer.model.training)
        return ask(trainer, *args, **kwargs)

    monkeypatch.setattr(GRPOTrainer, "_engine_infer", noted)
    assert trained(max_steps=3, learning_rate=1e-2, **overrides) == []
    assert all(modes), "a later turn is taken for an evaluation"
    steps = [row for row in testing.read_logging(tmp_path / "run") if "loss" in row]
    assert all("watch/engine_ratio" in step for step in steps), "nothing was compared"
    assert [step["num_turns"] for step in steps] == [3, 3, 3]
    worst = verdicts(tmp_path / "run", "note", "engine-worst")[-1]
    assert {(turn["turn"], Path(turn["image"]).suffix) for turn in worst["turns"]} == {
        (turn, ".png") for turn in (1, 2, 3)
    }
    listed = re.findall(
        r"\.png\), turn ([123]), \d+ tokens, image (56 x 56[^:]*): mean \|d\| ", worst["text"]
    )
    assert len(listed) == 3
    assert all(images.count("56 x 56") == int(turn) for turn, images in listed)


def test_an_image_that_is_changed_in_place_is_told(trained):
    (verdict,) = trained(scheduler=Drawing, **FIRST)
    assert "image 2, as turn 2 saw it, was changed in memory afterwards" in verdict["text"]
    assert "(row " in verdict["text"]


def test_a_scheduler_that_rewrites_history_is_noted_and_no_fault(trained, tmp_path):
    assert trained(scheduler=Forgetful, **FIRST) == []
    (note,) = verdicts(tmp_path / "run", "note", "engine-noise")
    assert "turn 1, 2 of row" in note["text"]
    assert "was sampled after another history than it is trained after" in note["text"]


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [{}, {"torch_dtype": "bfloat16", "bf16": True}])
def test_two_hundred_healthy_steps_of_three_turns_are_silent(overrides, trained, tmp_path, monkeypatch):
    monkeypatch.setenv("SWIFT_GRPO_EXT_AGREE_EVERY", "10")
    assert trained(max_steps=200, learning_rate=1e-4, **overrides) == []
    steps = [row for row in testing.read_logging(tmp_path / "run") if "loss" in row]
    assert len(steps) == 200
    assert steps[-1]["num_turns"] == 3
