"""Every family that a tiny checkpoint can be made of trains as without us, with a prompt and an image once."""

import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.models.families import TINY
from tests.trainer.runs import STOCK, figures, told


@pytest.fixture(scope="module", params=sorted(TINY))
def run(request, digits, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    model = testing.tiny_checkpoint(request.param, folder / "model")
    data = digits.train if TINY[request.param].vision else texts(folder)
    stock = figures(model, data, folder / "stock", STOCK)
    with told() as messages:
        ours = figures(model, data, folder / "ours")
    return request.param, stock, ours, messages


def texts(folder):
    import json

    rows = [{"messages": [{"role": "user", "content": f"Say {number}."}]} for number in range(16)]
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_every_figure_is_that_of_stock(run):
    _, stock, ours, _ = run
    assert stock["loss"]
    assert max(stock["grad_norm"]) > 0
    for name in stock:
        assert ours[name] == pytest.approx(stock[name], abs=2e-6, rel=2e-5), name


def test_nothing_is_off_without_a_reason_that_is_known(run):
    name, _, _, messages = run
    (states,) = [text for text in messages if "shared_prefix" in text and "skip_old" in text]
    assert "shared_prefix on" in states
    assert not [text for text in messages if "self-check failed" in text or "went the stock way" in text]
    if TINY[name].vision:
        assert "vision_once on" in states
