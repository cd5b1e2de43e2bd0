"""The public names: each can be had, nothing heavy comes with the package, and the docs name no other path."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import swift_grpo_ext

ROOT = Path(__file__).parents[1]
DEEP = re.compile(r"(?:from|import) swift_grpo_ext\.(?!testing\b)[\w.]+")


@pytest.mark.parametrize("name", swift_grpo_ext.__all__)
def test_every_public_name_is_there(name):
    assert getattr(swift_grpo_ext, name)


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'limitd'"):
        swift_grpo_ext.limitd  # noqa: B018


def test_a_name_that_is_gone_says_what_to_do_instead():
    with pytest.raises(ImportError, match=r"limited is gone -> .* time_limit = 5"):
        from swift_grpo_ext import limited  # noqa: F401


def test_rewards_come_without_torch_or_ms_swift():
    code = "import sys; from swift_grpo_ext import Reward, get_reward; assert get_reward('ext_count')\n"
    code += "assert not {'torch', 'swift', 'transformers'} & set(sys.modules), 'heavy'"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_docs_send_nobody_to_a_deep_path():
    pages = [page for folder in ("docs", "examples") for page in (ROOT / folder).rglob("*.md")]
    pages += list(ROOT.glob("*.md"))
    found = {page.name: match for page in pages for match in DEEP.findall(page.read_text(encoding="utf-8"))}
    assert found == {}
