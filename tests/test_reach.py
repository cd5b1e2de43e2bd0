"""Which of ms-swift's own launch commands share prompts, and what of the gains is on in each."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.reach_rows import megatron_rows, transformers_rows

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "reach.py"
KEYS = {
    "script",
    "completions_of_a_prompt_per_rank",
    "shared_prefix",
    "vision_once",
    "skip_old_logps",
    "guard",
    "tokens",
    "stock_tokens",
    "reason",
}


def test_what_a_rank_holds_of_a_prompt_in_each_command():
    held = [row.held for row in transformers_rows()]
    assert held == [8, 8, 8, 8, 1, 1, 1, 8, 8, 8, 1, 1, 1, 4, 8, 1, 2, 8, 1]
    assert sum(one > 1 for one in held) == 11


def test_what_a_data_parallel_rank_holds_of_a_prompt_with_megatron():
    """ms-swift deals whole groups to them, so all but distillation of one completion per prompt can share."""
    found = megatron_rows()
    assert len(found) == 16
    assert all(command.prompts >= 1 for command in found)
    engines = [command.engine for command in found if command.group > 1]
    assert (engines.count("megatron"), engines.count("megatron-ray")) == (11, 3)


@pytest.mark.slow
@pytest.mark.two_ranks
@pytest.mark.timeout(1800)
def test_every_command_that_can_share_does_and_the_others_say_what_would(tmp_path):
    out = tmp_path / "reach.json"
    subprocess.run([sys.executable, str(SCRIPT), "--json", str(out)], check=True, timeout=1700)
    rows = json.loads(out.read_text())["rows"]
    assert len(rows) == 19
    for row in rows:
        assert set(row) == KEYS
        several = row["completions_of_a_prompt_per_rank"] > 1
        assert row["shared_prefix"] == ("whole" if several else "off"), row
        assert row["vision_once"], row
        assert row["guard"], row
        assert (
            several or "num_generations" in row["reason"] or "--gradient_accumulation_steps" in row["reason"]
        )
        assert row["tokens"] < row["stock_tokens"] or not row["skip_old_logps"]
