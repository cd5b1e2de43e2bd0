"""Updates of a trainer on the made-up device, with made-up rollouts; prints a line ``FIGURES [...]``.

    python tests/device/on_device.py [--stock] [--family F] [--group G] [--updates N] [--limit MIB] [--tokens I Q C] [--mini] [--config] [name=value ...]

Of each update: ``waits`` by place, ``copies`` to the device by what they wait for, and in bytes what is held ``at_rest`` and the
``peaks`` by phase. Rollouts are made up, so nothing waits in one.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from tests.device import made_up  # noqa: E402  (before torch is asked for devices)
from tests.device.phases import Phases  # noqa: E402
from tests.device.stand_in import stand_in_for_cuda  # noqa: E402


def read_arguments() -> tuple[argparse.Namespace, dict]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stock", action="store_true")
    parser.add_argument("--family", default="qwen2_5_vl")
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--beta", type=float, default=0.04)
    parser.add_argument("--updates", type=int, default=2)
    parser.add_argument("--limit", type=float, default=0, help="MiB")
    parser.add_argument("--tokens", type=int, nargs=3, help="of the image, of the question, of a completion")
    parser.add_argument("--mini", action="store_true", help="model and tokens of README's table; minutes")
    parser.add_argument("--config", action="store_true", help="print the model's, too")
    asked, words = parser.parse_known_args()
    options = {}
    for word in words:
        name, value = word.split("=", 1)
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return asked, options


def main() -> None:
    asked, options = read_arguments()
    os.environ.setdefault("SWIFT_GRPO_EXT_DISABLE", "callbacks")
    from bench_models import FURTHER, build_checkpoint
    from bench_operations import Case
    from bench_shapes import SHAPES
    from bench_trainers import HOST, OURS, build_trainer, made_up_rollouts, run_update
    from update_phase import build_dataset

    from swift_grpo_ext.testing import tiny_checkpoint

    stand_in_for_cuda()
    size = "mini" if asked.mini else "tiny"
    tokens = tuple(asked.tokens or ((576, 42, 128) if asked.mini else (64, 42, 16)))
    case = Case(asked.group, *tokens, asked.beta, options.pop("checkpointing", True), False)
    updates = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model")
        if asked.family in FURTHER:
            model = build_checkpoint(asked.family, SHAPES[size], case, path)
        else:
            model = tiny_checkpoint(asked.family, path)
        rows = build_dataset(case, Path(folder, "data"), 14)
        made_up.ledger.limit = int(asked.limit * 2**20)
        with made_up.present() as ledger:
            path = HOST if asked.stock else OURS
            trainer = build_trainer(path, model, rows, Path(folder, "run"), case, use_cpu=False, **options)
            Phases().watch(trainer)
            for _ in range(asked.updates):
                made_up_rollouts(trainer, case, 0)
                trainer.model.zero_grad(set_to_none=True)
                ledger.reset()
                at_rest = ledger.allocated
                with made_up.phase("update"):
                    run_update(trainer)
                waits = [[place, what, count] for (_, place, what), count in ledger.waits.most_common()]
                updates.append(
                    {
                        "total": sum(each[2] for each in waits),
                        "waits": waits,
                        "copies": dict(ledger.copies),
                        "at_rest": at_rest,
                        "peaks": dict(ledger.peaks),
                    }
                )
        if asked.config:
            print("CONFIG " + json.dumps(json.loads(Path(model, "config.json").read_text())))
    print("FIGURES " + json.dumps(updates))


if __name__ == "__main__":
    main()
