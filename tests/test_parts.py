"""What can be turned off by name, and the line that says what is on."""

from pathlib import Path

import pytest

from swift_grpo_ext import registration
from swift_grpo_ext.errors import UnknownPartError
from swift_grpo_ext.features import FEATURES, features_of
from swift_grpo_ext.parts import PARTS, check_disabled
from swift_grpo_ext.registration import LONGEST, summary, swift_command
from swift_grpo_ext.settings import GONE_FEATURES, Settings, current_settings, disabled
from swift_grpo_ext.version import __version__


def test_a_feature_is_off_by_its_own_name_and_by_its_parts(monkeypatch):
    monkeypatch.setenv("SWIFT_GRPO_EXT_DISABLE", "trainer.vision_once,callbacks")
    current_settings.cache_clear()
    assert disabled("trainer.vision_once")
    assert disabled("callbacks.report")
    assert not disabled("trainer.shared_prefix")


def test_every_feature_of_every_part_can_be_named():
    check_disabled([*PARTS, *(f"{name}.{each}" for name, part in PARTS.items() for each in part.features)])


def test_a_feature_that_is_copied_from_the_line_is_turned_off(monkeypatch):
    check_disabled([*FEATURES, "B1", "report"])
    monkeypatch.setenv("SWIFT_GRPO_EXT_DISABLE", "skip_old_logps,B1")
    current_settings.cache_clear()
    assert disabled("trainer.skip_old_logps")
    assert disabled("compat.B1")
    assert not disabled("trainer.vision_once")


def test_a_feature_is_not_called_like_a_part():
    assert not set(PARTS) & {name for part in PARTS.values() for name in part.features}


def test_the_page_of_each_engine_names_every_feature():
    for engine in ("trainer", "megatron"):
        page = (Path(__file__).parents[1] / f"docs/parts/{engine}.md").read_text(encoding="utf-8")
        assert not [name for name in features_of(engine) if f"`{name}`" not in page], engine


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("trainer.vision_onse", "trainer.vision_once"),
        ("compat.B12", "compat.B1"),
        ("trainr.vision_once", "trainer"),
        ("callbacks.", "callbacks.report"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(name, nearest):
    with pytest.raises(UnknownPartError, match=f"did you mean '{nearest}") as refused:
        check_disabled([name])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", sorted(set(GONE_FEATURES) - set(FEATURES)))
def test_a_feature_that_is_gone_says_what_to_do_instead(name):
    for written in (name, f"trainer.{name}"):
        with pytest.raises(UnknownPartError, match=rf"{name} is gone.*{GONE_FEATURES[name]}"):
            check_disabled([written])


def test_a_part_without_features_says_so():
    with pytest.raises(UnknownPartError, match="only the whole part"):
        check_disabled(["rewards.ext_iou"])


def test_there_are_at_most_15_settings():
    assert len(Settings.model_fields) <= 15


ALL = {
    "compat": [f"fix-{number}" for number in range(20)],
    "templates": ["qwen2_5_vl", "ovis2_hf"],
    "trainer": ["grpo"],
    "megatron": ["grpo"],
    "rewards": [f"ext_{number}" for number in range(30)],
    "presets": [f"ext_zero{number}" for number in range(9)],
    "callbacks": ["ext_watch"],
}


GRPO = "a group's prompt and images are computed once | rewards ext_iou mine | report in out"
OPTIONS = ["--reward_funcs", "ext_iou", "mine", "--output_dir=out"]


@pytest.mark.parametrize(
    ("argv", "command", "words"),
    [
        (["/x/swift/cli/rlhf.py", "--rlhf_type", "grpo", *OPTIONS], "rlhf grpo", GRPO),
        (["/x/swift/cli/rlhf.py", "--rlhf_type=grpo", *OPTIONS], "rlhf grpo", GRPO),
        # What a script appends as "$@" is what ms-swift takes.
        (["/x/swift/cli/rlhf.py", "--reward_funcs", "a", "--rlhf_type=grpo", *OPTIONS], "rlhf grpo", GRPO),
        (["/x/swift/cli/rlhf.py", "--rlhf_type", "dpo"], "rlhf", "compat, templates, presets"),
        (["/x/swift/cli/rollout.py"], "rollout", "compat, templates"),
        (["/x/swift/cli/_megatron/rlhf.py", "--rlhf_type", "grpo", *OPTIONS], "megatron rlhf", GRPO),
    ],
)
def test_the_first_line_says_what_a_user_can_use(monkeypatch, argv, command, words):
    monkeypatch.setattr(registration, "_registered", ALL)
    monkeypatch.setattr("sys.argv", argv)
    monkeypatch.delenv("SWIFT_GRPO_EXT_DISABLE", raising=False)
    current_settings.cache_clear()
    assert swift_command(argv) == command
    head, _, rest = summary().partition(" | ")
    assert head.startswith(f"swift-grpo-ext {__version__} on ms-swift 4.")
    assert rest == words


def test_the_line_stays_short_with_much_turned_off(monkeypatch):
    monkeypatch.setattr(registration, "_registered", ALL)
    monkeypatch.setenv("SWIFT_GRPO_EXT_DISABLE", ",".join(f"trainer.{x}" for x in PARTS["trainer"].features))
    current_settings.cache_clear()
    assert len(summary()) <= LONGEST
    assert " | off: trainer." in summary()
