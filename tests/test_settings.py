import pytest

from swift_grpo_ext.errors import SettingsError
from swift_grpo_ext.settings import GONE_SETTINGS, Settings, load_settings


def test_defaults_turn_everything_on(monkeypatch):
    monkeypatch.delenv("SWIFT_GRPO_EXT_DISABLE")
    settings = load_settings()
    assert settings.disable == ()
    assert settings.bad_row == "skip"


def test_disable_is_a_comma_separated_list(monkeypatch):
    monkeypatch.setenv("SWIFT_GRPO_EXT_DISABLE", "trainer, rewards,")
    assert load_settings().disable == ("trainer", "rewards")


def test_unknown_setting_names_the_nearest(monkeypatch):
    monkeypatch.setenv("SWIFT_GRPO_EXT_CONSOEL", "1")
    with pytest.raises(SettingsError, match=r"SWIFT_GRPO_EXT_CONSOEL.*did you mean SWIFT_GRPO_EXT_CONSOLE"):
        load_settings()


@pytest.mark.parametrize("name", sorted(set(GONE_SETTINGS) - set(Settings.model_fields)))
def test_a_setting_that_is_gone_says_what_to_do_instead(monkeypatch, name):
    monkeypatch.setenv(f"SWIFT_GRPO_EXT_{name.upper()}", "1")
    with pytest.raises(SettingsError, match=rf"is gone.*{name.upper()}") as raised:
        load_settings()
    assert str(raised.value).endswith(GONE_SETTINGS[name])
    assert "\n" not in str(raised.value)


def test_value_out_of_range_names_the_variable_and_its_meaning(monkeypatch):
    monkeypatch.setenv("SWIFT_GRPO_EXT_BAD_ROW", "maybe")
    with pytest.raises(
        SettingsError, match=r"got 'maybe'.*SWIFT_GRPO_EXT_BAD_ROW.*a row whose image"
    ) as raised:
        load_settings()
    assert "\n" not in str(raised.value)
