import pytest

from swift_grpo_ext.rewards.reading.number_forms import CALCULATED, in_one_form
from swift_grpo_ext.rewards.reading.words import NUMBERS


@pytest.mark.parametrize("form", [*NUMBERS.before_folding, *NUMBERS.folded], ids=lambda form: form.example)
def test_each_form_rewrites_its_example(form):
    assert form.rewritten(form.example, CALCULATED) == form.becomes


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("three hundred and 2 1/2 km", "300 and 5/2 km"),
        ("2½ km", "5/2 km"),
        ("1.2 × 10³", "1.2 × 10^3"),
        (r"40^\circ", "40°"),
        ("−5", "-5"),
    ],
)
def test_all_forms_together(text, plain):
    assert in_one_form(text) == plain
