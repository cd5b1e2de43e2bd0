"""docs/families.md says what the code answers today."""

import pytest

from swift_grpo_ext.versions import installed_version, releases_run
from tools import families_page


@pytest.mark.skipif(
    installed_version("transformers") != releases_run("transformers")[-1],
    reason="the page is that of the highest transformers of the sets",
)
def test_the_page_is_what_the_code_answers():
    found = families_page.page()
    assert families_page.PAGE.read_text(encoding="utf-8") == found, "python tools/families_page.py"
    assert found.count(" on |") > 40
