"""Updates of a trainer on the made-up device, with made-up rollouts; prints one JSON line.

    python tests/device/on_device.py [--stock] [--family F] [--group G] [--updates N] [--limit MIB] [--mini] [name=value ...]

``waits`` of each update by place, ``peaks`` by phase in bytes. Rollouts are made up, so nothing here waits in one.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks"), str(Path(__file__).parent)]

import made_up  # noqa: E402  (before torch is asked for devices)


def stand_in_for_cuda() -> None:
    """Let transformers, accelerate and ms-swift choose the made-up device."""
    import accelerate.state
    import transformers.training_args as training_args

    accelerate.state.PartialState.default_device = property(lambda self: made_up.DEVICE)
    training_args.TrainingArguments.device = property(lambda self: (self._setup_devices, made_up.DEVICE)[1])
    import swift.pipelines  # noqa: F401
    import swift.rlhf_trainers.grpo_trainer  # noqa: F401

    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("swift."):
            for name in {"get_device", "get_current_device"} & vars(module).keys():
                setattr(module, name, lambda *_, **__: str(made_up.DEVICE))


def read_arguments() -> tuple[argparse.Namespace, dict]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stock", action="store_true")
    parser.add_argument("--family", default="qwen2_5_vl")
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--beta", type=float, default=0.04)
    parser.add_argument("--updates", type=int, default=2)
    parser.add_argument("--limit", type=float, default=0, help="MiB")
    parser.add_argument("--mini", action="store_true", help="model and tokens of README's table; minutes")
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
    size, tokens = ("mini", (576, 42, 128)) if asked.mini else ("tiny", (64, 42, 16))
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
                        "at_rest": at_rest,
                        "peaks": dict(ledger.peaks),
                    }
                )
    print("FIGURES " + json.dumps(updates))


if __name__ == "__main__":
    main()
