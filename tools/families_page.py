"""Writes docs/families.md: what is on for each family, asked of a tiny model of it. A test keeps it true.

python tools/families_page.py
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for tests

import torch

from swift_grpo_ext.group.interface import why_no_packs, why_no_shared_prefill
from swift_grpo_ext.hugging_face.configs import architectures_of, class_named
from swift_grpo_ext.models.derived import speaking_model
from swift_grpo_ext.models.families import ENTRIES, family_of, frame_of, why_unknown
from swift_grpo_ext.models.families import FAMILIES as DESCRIBED
from swift_grpo_ext.models.family import VisionFamily
from swift_grpo_ext.testing import tiny_config
from swift_grpo_ext.testing.families import TINY
from tests.engines.test_families import FAMILIES as TRIED_IN_VLLM
from tests.megatron.table import NOT_TRAINED, TRAINED
from tests.trainer import test_families, test_passes_ranks

PAGE = Path(__file__).parents[1] / "docs" / "families.md"
COLUMNS = (
    "shared prefix",
    "vision once",
    "prefill",
    "guard",
    "video",
    "ZeRO-3",
    "LoRA",
    "vLLM",
    "Megatron",
    "frame",
)
# What the tests run, read from their tables.
LORA = {run.values[0] for run in test_families.WAYS if run.values[1] == "lora"}
ZERO3 = {family for family, way in test_passes_ranks.RUNS if way.startswith("zero3")}
VLLM = {name: tried.reason for name, tried in TRIED_IN_VLLM.items()}
VLLM["ovis2"] = "vLLM has no such class"  # tests/engines/test_ovis2.py
# Seen: transformers 5.19 puts these experts' weights into their layout without ZeRO-3 only, and ends with it.
NOT_LOADED_BY_ZERO3 = {"qwen3_vl_moe": "transformers 5.19 cannot load it there"}
HEAD = """# Families

What is on for each family, asked of a tiny model of it; `python tools/families_page.py` writes this page. The
first two are described by this package, the others derived from the config and from what ms-swift knows of
the model. `tests/trainer/test_families.py` holds runs of each against ms-swift's own passes, on rows with no
image to three and completions of several lengths: full training and LoRA, with gradient checkpointing and
without, computed in double precision: each logged figure to its eight decimals and to 1e-9, and the first
gradient of each parameter to 1e-9 of itself or to four roundings of the whole.

In single precision and below each rounds in its own way. Gradients of gated delta nets that cancel out to
1e-8 of the whole are in ms-swift's own runs up to percents from what double precision gives, in ours about
as far in another direction (our completions begin at a new chunk of 64 tokens, which is likely why).
In other micro-batches ms-swift repeats its own roundings, row by row, so its distance from itself says little
of who is right. `tests/group/test_rounding.py` measures packs and rows of eight kinds of decoders (of all in
`make test-slow`) from double precision, log-probs and gradients, in fp32 and in bf16: a pack was at most 1.12
times as far from it as the furthest of ms-swift's layouts (padded left, padded right, one row at a time),
with gated delta nets 0.55 to 1.0 times. `tests/sweep/test_tower_rounding.py` does so for the gradients of a
step on images in bf16, for all families that see: all parameters were 0.77 to 1.03 times as far from double
precision as the furthest of ms-swift's layouts, those of a vision tower that trains 0.77 to 1.15 times.

`tests/trainer/test_families.py` also runs each family in fp32 and in bf16 (the self-check), and as a command
with a model that prefers placeholders. "not run": no test does.

In the column vLLM `tests/engines/test_families.py` (`make test-vllm`) trains each family for two steps with
rollouts by vLLM 0.32 on a CPU, colocated, and a bias towards placeholders: none is sampled, and the engine
check finds no fault before and after a weight sync, with log-probs within 1e-3 of the trainer's (bf16: within
the check's own limit).

In the column Megatron `tests/megatron/test_trainer.py` (`make test-megatron`) trains each family with
Megatron on a CPU, equal to ms-swift's own trainer there: see [Megatron on a CPU](megatron.md).

A family that does not stand here is used if its description can be derived and the first micro-batch passes
the self-check; else it goes ms-swift's own way, and one line says why.

"""


def models() -> Iterator[tuple[str, Any]]:
    """A name and a model without weights for each family."""
    for name in sorted(TINY, key=lambda name: (name not in DESCRIBED, name)):
        config = tiny_config(name, defaultdict(lambda: 5), vocab_size=512)
        with torch.device("meta"):
            model = class_named(architectures_of(config)[0])._from_config(config, attn_implementation="sdpa")
        yield name, speaking_model(model)


def row(name: str, base: Any) -> list[str]:
    """The cells of a family."""
    facts, vision = family_of(base.config), getattr(base.config, "vision_config", None) is not None
    has_videos = facts is not None and facts.video_token_id is not None
    return [
        why_no_packs(base) or "on",
        "no images" if not vision else why_unknown(base.config) or "on",
        why_no_shared_prefill(base) or "on",
        "no images" if not vision else "on",
        "no images" if not vision else "on" if has_videos else "no video token",
        _zero3(name, facts),
        _run(name in LORA),
        _off(VLLM[name]) if VLLM.get(name) else _run(name in VLLM),
        _off(NOT_TRAINED[name]) if name in NOT_TRAINED else _run(name in TRAINED),
        (frame_of(SimpleNamespace(model_type=name)) or "not known") if vision else "no images",
    ]


def _zero3(name: str, facts: VisionFamily | None) -> str:
    why = facts.lacks.get("zero3", "") if facts else ""
    why = why or NOT_LOADED_BY_ZERO3.get(name, "")
    return _off(why) if why else _run(name in ZERO3)


def _off(why: str) -> str:
    return f"off: {why}"


def _run(by_a_test: bool) -> str:
    return "on" if by_a_test else "not run"


def page() -> str:
    """The page as it should be."""
    lines = [("family", *COLUMNS), ("---",) * (len(COLUMNS) + 1)]
    lines += [(f"`{name}`", *row(name, base)) for name, base in models()]
    missing = {name: why for one in ENTRIES for name, why in one.not_loaded.items()}
    return (
        HEAD
        + "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
        + "\n\nNot trained by ms-swift on the tested versions, so not tried:\n\n"
        + "".join(f"- `{name}`: {why}\n" for name, why in sorted(missing.items()))
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
