from pathlib import Path

from tools import symptoms_page

PAGE = Path(__file__).parents[2] / "docs" / "symptoms.md"


def test_the_page_is_current():
    assert PAGE.read_text(encoding="utf-8") == symptoms_page.as_markdown()


def test_exact_error_texts_can_be_searched():
    page = PAGE.read_text(encoding="utf-8")
    for text in (
        "pop from an empty deque",
        "Expected to mark a variable ready only once",
        "torchvision::nms",
    ):
        assert text in page
