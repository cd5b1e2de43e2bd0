"""What can be turned off by name, and the line that says what is on."""

import pytest

from swift_grpo_ext import registration
from swift_grpo_ext.errors import SettingsError, UnknownPartError
from swift_grpo_ext.parts import PARTS, check_disabled
from swift_grpo_ext.registration import summary, swift_command
from swift_grpo_ext.settings import REMOVED, Settings, current_settings, disabled, load_settings


def test_a_feature_is_off_by_its_own_name_and_by_its_parts(monkeypatch):
    monkeypatch.setenv("SWIFT_GRPO_EXT_DISABLE", "trainer.vision_once,callbacks")
    current_settings.cache_clear()
    assert disabled("trainer.vision_once")
    assert disabled("callbacks.report")
    assert not disabled("trainer.shared_prefix")


def test_every_feature_of_every_part_can_be_named():
    check_disabled([*PARTS, *(f"{name}.{each}" for name, part in PARTS.items() for each in part.features)])


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


def test_a_part_without_features_says_so():
    with pytest.raises(UnknownPartError, match="only the whole part"):
        check_disabled(["rewards.ext_iou"])


@pytest.mark.parametrize("name", sorted(REMOVED))
def test_a_removed_setting_says_what_replaces_it(monkeypatch, name):
    monkeypatch.setenv(f"SWIFT_GRPO_EXT_{name}", "1")
    with pytest.raises(
        SettingsError, match=f"this setting was removed .SWIFT_GRPO_EXT_{name}. -> "
    ) as refused:
        load_settings()
    assert "\n" not in str(refused.value)
    for feature in str(refused.value).split("DISABLE=")[1:]:
        feature = feature.split()[0].replace("<id>", "B1")
        check_disabled([feature])


def test_there_are_at_most_24_settings():
    assert len(Settings.model_fields) <= 24
    assert not {name.upper() for name in Settings.model_fields} & set(REMOVED)


ALL = {
    "compat": [f"fix-{number}" for number in range(20)],
    "templates": ["qwen2_5_vl", "ovis2_hf"],
    "trainer": ["grpo"],
    "rewards": [f"ext_{number}" for number in range(30)],
    "presets": [f"ext_zero{number}" for number in range(9)],
    "callbacks": ["ext_watch"],
}


@pytest.mark.parametrize(
    ("argv", "command", "silent"),
    [
        (["/x/swift/cli/rlhf.py", "--rlhf_type", "grpo"], "rlhf grpo", set()),
        (["/x/swift/cli/rlhf.py", "--rlhf_type=grpo"], "rlhf grpo", set()),
        (["/x/swift/cli/rlhf.py", "--rlhf_type", "dpo"], "rlhf", {"trainer", "rewards", "callbacks"}),
        (["/x/swift/cli/rollout.py"], "rollout", {"trainer", "rewards", "presets", "callbacks"}),
        (
            ["/x/swift/cli/_megatron/rlhf.py", "--rlhf_type", "grpo"],
            "megatron rlhf",
            {"trainer", "presets", "callbacks"},
        ),
        (["/x/my_script.py"], "", set()),
    ],
)
def test_the_line_is_short_and_names_what_works_in_this_process(monkeypatch, argv, command, silent):
    monkeypatch.setattr(registration, "_registered", ALL)
    monkeypatch.setattr("sys.argv", argv)
    assert swift_command(argv) == command
    line = summary()
    assert len(line) <= 160
    assert {part for part in PARTS if f"{part}: " in line} == set(PARTS) - silent
    assert "swift-grpo-ext env" in line


def test_the_line_stays_short_with_much_turned_off(monkeypatch):
    monkeypatch.setattr(registration, "_registered", ALL)
    monkeypatch.setenv("SWIFT_GRPO_EXT_DISABLE", ",".join(f"trainer.{x}" for x in PARTS["trainer"].features))
    current_settings.cache_clear()
    assert len(summary()) <= 160
    assert f"off: {len(PARTS['trainer'].features)} |" in summary()
