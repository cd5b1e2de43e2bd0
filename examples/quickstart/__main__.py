"""Runs the quickstart: ``python -m examples.quickstart``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from swift_grpo_ext import testing
from swift_grpo_ext.errors import SwiftGrpoExtError

# Before torch is imported: on the CPU, and on one thread, so that every machine adds in the same order.
os.environ.update(testing.cpu_environment(), OMP_NUM_THREADS="1", HF_HUB_DISABLE_PROGRESS_BARS="1")
os.environ.setdefault(
    "SWIFT_GRPO_EXT_DISABLE", "callbacks.report"
)  # the one of this command shows held-out images, too

from examples.quickstart.evaluation import accuracy, greedy_answers, spread
from examples.quickstart.page import write_page
from examples.quickstart.progress import announce
from examples.quickstart.setting import DEFAULT, SETTINGS, SIZES, Setting, default_output
from examples.quickstart.training import train_grpo, warm_start

NEEDED_GAIN = 15.0  # points; a run that gains less has not shown that it learns


def quickstart(setting: Setting, output: Path) -> tuple[float, float]:
    """Run all of it.

    Returns:
        Per cent of the held-out images that are read right after the warm start, and after GRPO.
    """
    output.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    announce(1, f"random {setting.name} and 1,797 handwritten digits of scikit-learn")
    model = testing.tiny_checkpoint(setting.family, output / "random", seed=setting.seed, **SIZES)
    digits = testing.digits_dataset(output / "digits", seed=setting.seed)
    held_out = testing.read_jsonl(digits.test)

    announce(2, "warm start: swift sft")
    warm = warm_start(setting, model, digits.train, output)
    announce(3, f"greedy answers of the warm start on {len(held_out)} held-out images")
    before = greedy_answers(warm, held_out)
    print(f"      {accuracy(before, held_out):.1f} % right", flush=True)

    announce(4, 'swift rlhf --rlhf_type grpo --external_plugins "$(swift-grpo-ext path)"')
    trained = train_grpo(setting, warm, digits, output)
    announce(5, "greedy answers after GRPO on the same images")
    after = greedy_answers(trained, held_out)
    print(f"      {accuracy(after, held_out):.1f} % right", flush=True)

    announce(6, "report")
    report = write_page(output, held_out, before, after)
    right = accuracy(before, held_out), accuracy(after, held_out)
    print(
        f"\nheld-out accuracy  warm start {right[0]:.1f} %"
        f"  ->  GRPO {right[1]:.1f} %  ({right[1] - right[0]:+.1f} points)\n"
        f"report             {report.html}\n"
        f"model              {trained}\n"
        f"time               {time.monotonic() - started:.0f} s"
    )
    return right


def main() -> int:
    """Entry of the command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.quickstart", description=__doc__)
    parser.add_argument("--model", choices=sorted(SETTINGS), default=DEFAULT)
    parser.add_argument("--output", type=Path, help="default: output/quickstart, or quickstart_MODEL")
    parser.add_argument("--seeds", type=int, nargs="+", default=[None], help="one run each; prints the range")
    options = parser.parse_args()
    output = (options.output or default_output(options.model)).resolve()
    several = len(options.seeds) > 1
    results = []
    try:
        for seed in options.seeds:
            setting = SETTINGS[options.model].with_seed(seed)
            results.append(quickstart(setting, output / f"seed{seed}" if several else output))
    except SwiftGrpoExtError as error:
        print(error, file=sys.stderr)
        return 2
    if several:
        print(spread(results))
    if min(after - before for before, after in results) < NEEDED_GAIN:
        print(f"quickstart: GRPO gained less than {NEEDED_GAIN:g} points", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
