"""The report's section on rollout engine and trainer: worst turns with picture, tables by turn, image and length."""

import pytest
from PIL import Image

from swift_grpo_ext.watch.journal import Journal
from swift_grpo_ext.watch.report import write_report
from swift_grpo_ext.watch.report.engine import TableRow, engine_figures
from swift_grpo_ext.watch.report.run import read_run
from tests.watch.report.made_up_run import HOSTILE, Tags, write_run


def compared(turn, mean, *, images="56 x 56", image="", tokens=12, compared=10.0, worst="token 3"):
    facts = {"row": "row 3", "turn": turn, "tokens": tokens, "compared": compared, "images": images}
    return facts | {"image": image, "mean": mean, "ratio": 1 + mean, "worst": worst}


@pytest.fixture
def checked(tmp_path):
    """A run whose engine was compared at two steps."""
    Image.new("RGB", (56, 56), "#335577").save(tmp_path / "picture.png")
    folder = write_run(tmp_path / "run", [0.1 * step for step in range(12)])
    journal = Journal(folder, 0)
    picture = str(tmp_path / "picture.png")
    first = [compared(1, 0.1), compared(2, 0.4, image=picture, images="56 x 56, 112 x 84")]
    journal.add("note", step=0, id="engine-worst", text="in words", turns=first)
    second = [compared(1, 0.3, compared=30.0, worst=HOSTILE), compared(2, 0.2, tokens=300, images="")]
    journal.add("note", step=1, id="engine-worst", text="in words", turns=[*second, {"turn": 1}, None])
    return folder


def test_tables_are_means_over_tokens(checked):
    engine = engine_figures(read_run(checked))
    assert [(turn.step, turn.turn, turn.mean) for turn in engine.worst] == [
        (0, 2, 0.4),
        (1, 1, 0.3),
        (1, 2, 0.2),
    ]
    by_turn, by_image, by_length = engine.tables.values()
    assert by_turn == [
        TableRow("1", 2, pytest.approx(0.25), pytest.approx(1.25)),
        TableRow("2", 2, pytest.approx(0.3), pytest.approx(1.3)),
    ]
    assert [row.label for row in by_image] == [
        "no image, or its size is not known",
        "56 x 56",
        "56 x 56, 112 x 84",
    ]
    assert [(row.label, row.turns) for row in by_length] == [("up to 16", 3), ("up to 1,024", 1)]


def test_the_page_has_pictures_and_escapes_what_models_say(checked):
    report = write_report(checked)
    page = report.html.read_text(encoding="utf-8")
    assert "Rollout engine against trainer" in page
    pictures = [facts for tag, facts in Tags(page).found if tag == "img"]
    assert [facts["src"].partition(",")[0] for facts in pictures] == ["data:image/jpeg;base64"]
    assert "<script>alert" not in page
    assert not any("engine-worst" in reason for reason in report.verdicts[0].reasons)


def test_a_run_without_a_check_has_no_section(tmp_path):
    folder = write_run(tmp_path / "run", [0.5] * 12)
    assert engine_figures(read_run(folder)) is None
    assert "engine against" not in write_report(folder).html.read_text(encoding="utf-8")
