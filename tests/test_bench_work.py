"""The bound of the benchmark: from a model's own weights, for every family that it runs."""

import sys
from pathlib import Path

import pytest
import torch

from swift_grpo_ext.testing import tiny_config

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
bench_models = pytest.importorskip("bench_models")
from bench_operations import Case, bound, work_of  # noqa: E402
from bench_shapes import SHAPES  # noqa: E402

CASE = Case()


def built(family):
    shape = SHAPES["mini"]
    text, vision, top = bench_models.FURTHER[family](shape, CASE)
    sizes = {**bench_models.text_sizes(shape), "vocab_size": shape.vocab_size, **text}
    config = tiny_config(family, vision=vision, top=top, **sizes)
    import transformers

    with torch.device("meta"):
        return getattr(transformers, config.architectures[0])._from_config(config)


def test_counted_weights_are_those_of_the_arithmetic():
    """Qwen2.5-VL's, whose shape the arithmetic describes."""
    counted, written = bench_models.counted_work(built("qwen2_5_vl")), work_of(SHAPES["mini"])
    for name, value in vars(written).items():
        assert getattr(counted, name) == pytest.approx(value, rel=1e-6), name


@pytest.mark.parametrize("family", sorted(bench_models.FURTHER))
def test_every_family_has_a_bound(family):
    assert 2 < bound(bench_models.counted_work(built(family)), CASE) < 8
