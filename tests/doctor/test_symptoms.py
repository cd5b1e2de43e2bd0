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


def test_every_row_says_what_to_change():
    """A rule whose own words hang on the run has its line in tools/symptoms_fixes.yaml."""
    assert [row.symptom for row in symptoms_page.rows() if "says it for your run" in row.cure] == []
    assert all(row.cure.strip() for row in symptoms_page.rows())


def test_the_chinese_page_has_symptoms_of_the_english_one():
    lines = (PAGE.parent / "zh/symptoms.md").read_text(encoding="utf-8").splitlines()
    rows = [line.split("|")[1].strip() for line in lines if line.startswith("| ")][1:]
    assert len(rows) > 20
    assert set(rows) <= {row.symptom for row in symptoms_page.rows()}
