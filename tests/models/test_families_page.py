"""docs/families.md says what the code answers today."""

from tools import families_page


def test_the_page_is_what_the_code_answers():
    found = families_page.page()
    assert families_page.PAGE.read_text(encoding="utf-8") == found, "python tools/families_page.py"
    assert found.count(" on |") > 40
