from typing import get_args

import pytest

from swift_grpo_ext.errors import SettingsError
from swift_grpo_ext.group.attention import BACKENDS
from swift_grpo_ext.settings import Settings, load_settings


def test_defaults_turn_everything_on(monkeypatch):
    monkeypatch.delenv("SWIFT_GRPO_EXT_DISABLE")
    settings = load_settings()
    assert settings.disable == ()
    assert settings.strict is False


def test_disable_is_a_comma_separated_list(monkeypatch):
    monkeypatch.setenv("SWIFT_GRPO_EXT_DISABLE", "trainer, rewards,")
    assert load_settings().disable == ("trainer", "rewards")


def test_unknown_setting_names_the_nearest(monkeypatch):
    monkeypatch.setenv("SWIFT_GRPO_EXT_STRIKT", "1")
    with pytest.raises(SettingsError, match=r"SWIFT_GRPO_EXT_STRIKT.*did you mean SWIFT_GRPO_EXT_STRICT"):
        load_settings()


def test_value_out_of_range_names_the_variable_and_its_meaning(monkeypatch):
    monkeypatch.setenv("SWIFT_GRPO_EXT_STRICT", "maybe")
    with pytest.raises(SettingsError, match=r"got 'maybe'.*SWIFT_GRPO_EXT_STRICT.*is an error") as raised:
        load_settings()
    assert "\n" not in str(raised.value)


def test_every_attention_backend_can_be_asked_for():
    assert set(get_args(Settings.model_fields["attention"].annotation)) == {"auto", *BACKENDS}
