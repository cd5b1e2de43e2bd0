"""Whole training steps, by phase, with rollouts by transformers or vLLM: ms-swift's trainer and ours.

    python benchmarks/step.py --family qwen2_5_vl --size mini --group 8 --image-tokens 576 \\
        --completion 128 --beta 0.04 --device cpu --repeats 3 --json OUT
    PYTHONPATH=$PWD .swift_grpo_ext/envs/vllm/bin/python benchmarks/step.py \\
        --rollouts vllm --size mini --repeats 3 --json OUT   # after make test-vllm has made it

Measured is the trainer's training step: rollouts, encoding, passes, loss and backward. The optimizer's own
step is the same on both sides and left out. Rewards are made up, and every completion has the full length.
With vLLM both trainers have one engine.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import update_phase  # first of ours: it puts the package on the path
from bench_measure import Peak, exact_heap, machine, median, peak_memory, timed
from bench_operations import Case
from bench_trainers import Update, attributes, counted, made_up_rewards

ENGINES = Path(__file__).resolve().parents[1] / "tests" / "engines"
VLLM_ON_A_CPU = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # a further process would not load the plugins
}
PHASES = ("rollout", "prepare", "passes without gradients", "policy", "backward", "rest")


@dataclass
class Step:
    """One training step.

    Attributes:
        seconds: Wall clock of the whole.
        phases: Of its parts, by name.
        peak: Memory at its peak and at its start.
        counts: Tower calls and tokens of the language model.
    """

    seconds: float = 0.0
    phases: Counter[str] = field(default_factory=Counter)
    peak: Peak = field(default_factory=Peak)
    counts: Update = field(default_factory=Update)


def full_length(trainer: Any, case: Case) -> None:
    """Let every completion have all its tokens, whatever the random model would like to end with."""
    prepare = trainer.engine._prepare_generation_config

    def longest(*args: Any, **kwargs: Any) -> Any:
        config = prepare(*args, **kwargs)
        if hasattr(config, "ignore_eos"):
            config.ignore_eos = True  # vLLM's
        else:
            config.min_new_tokens = case.completion
        return config

    trainer.engine._prepare_generation_config = longest


def run_step(trainer: Any, seed: int) -> Step:
    """One call of the trainer's own ``train`` for one step."""
    done = Step()
    made_up_rewards(trainer, seed)
    device = trainer.accelerator.device
    step, scores = trainer.training_step, trainer._get_per_token_logps_and_entropies

    def training_step(*args: Any, **kwargs: Any) -> Any:
        seconds, result = timed(lambda: step(*args, **kwargs), device)
        done.seconds += seconds
        return result

    def in_phase(name: str, function: Callable[..., Any], outer: str = "") -> Callable[..., Any]:
        """Count its time to a phase, and not to the one around it."""

        def run(*args: Any, **kwargs: Any) -> Any:
            seconds, result = timed(lambda: function(*args, **kwargs), device)
            done.phases[name] += seconds
            if outer:
                done.phases[outer] -= seconds
            return result

        return run

    without_gradients = in_phase("passes without gradients", scores, "prepare")

    def scored(*args: Any, **kwargs: Any) -> Any:
        return (scores if torch.is_grad_enabled() else without_gradients)(*args, **kwargs)

    trainer._step, trainer._buffered_inputs = 0, None
    replaced = {
        "training_step": training_step,
        "_get_per_token_logps_and_entropies": scored,
        "_generate_completions": in_phase("rollout", trainer._generate_completions),
        "_prepare_batch_inputs": in_phase("prepare", trainer._prepare_batch_inputs),
        "compute_loss": in_phase("policy", trainer.compute_loss),
    }
    backward = {"backward": in_phase("backward", trainer.accelerator.backward)}
    with (
        attributes(trainer, replaced),
        attributes(trainer.accelerator, backward),
        counted(trainer, done.counts),
        peak_memory(device) as done.peak,
    ):
        trainer.train()
    done.phases["rest"] = done.seconds - sum(done.phases.values())
    return done


def measure(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All figures of one case."""
    case = update_phase.case_of(asked)
    with exact_heap():  # memory
        trainers = update_phase.build_both(asked, case, folder, **_rollouts(asked, case))
        for trainer in trainers.values():
            full_length(trainer, case)
        run_step(trainers["ext"], 0)  # with the self-check, and with what a process loads and allocates once
        first = {name: run_step(trainer, 0) for name, trainer in trainers.items()}
    steps: dict[str, list[Step]] = {name: [] for name in trainers}
    for repeat in range(asked.repeats):
        for name, trainer in trainers.items():
            steps[name].append(run_step(trainer, repeat))
    seconds = {name: [step.seconds for step in done] for name, done in steps.items()}
    phases = {
        name: {phase: median([step.phases[phase] for step in done]) for phase in PHASES}
        for name, done in steps.items()
    }
    last = {name: done[-1] for name, done in steps.items()}
    peaks = {
        name: update_phase.bytes_of_weights(trainers[name]) + step.peak.above for name, step in first.items()
    }
    return {
        "ratio": median(seconds["stock"]) / median(seconds["ext"]),
        "stock_seconds": median(seconds["stock"]),
        "ext_seconds": median(seconds["ext"]),
        "all_seconds": seconds,
        "phases": phases,
        "rollouts": asked.rollouts,
        "peak_memory_ratio": peaks["ext"] / peaks["stock"],
        "peak_bytes": peaks,
        "tower_calls": last["ext"].counts.tower_calls,
        "stock_tower_calls": last["stock"].counts.tower_calls,
        "tokens": last["ext"].counts.tokens,
        "stock_tokens": last["stock"].counts.tokens,
        "family": asked.family,
        "size": asked.size,
        "case": asdict(case),
        "machine": machine(trainers["ext"].accelerator.device),
    }


def _rollouts(asked: argparse.Namespace, case: Case) -> dict[str, Any]:
    """Arguments of the engine; with vLLM one engine for both trainers, as there is one machine."""
    if asked.rollouts == "transformers":
        return {}
    from swift.rlhf_trainers.rollout_mixin import RolloutTrainerMixin

    from swift_grpo_ext.plugin_files import plugin_file

    prepare, engines = RolloutTrainerMixin._prepare_vllm_engine, []

    def first(trainer: Any) -> Any:
        if not engines:
            engines.append(prepare(trainer))
        return engines[0]

    RolloutTrainerMixin._prepare_vllm_engine = first
    return {
        "use_vllm": True,
        "vllm_mode": "colocate",
        "vllm_enforce_eager": True,
        "vllm_max_model_len": 2 * (case.prompt + case.completion),
        "external_plugins": [plugin_file(), ENGINES / "cpu_vllm.py"],
    }


def table(result: dict[str, Any]) -> str:
    """Seconds by phase, as Markdown."""
    rows = ["| phase | stock | ours |\n|---|---|---|"]
    for phase in PHASES:
        stock, ours = (result["phases"][name][phase] for name in ("stock", "ext"))
        rows.append(f"| {phase} | {stock:.2f} s | {ours:.2f} s |")
    rows.append(f"| whole step | {result['stock_seconds']:.2f} s | {result['ext_seconds']:.2f} s |")
    return "\n".join(rows)


def main() -> None:
    def further(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--rollouts", default="transformers", choices=["transformers", "vllm"])

    asked = update_phase.arguments_of_benchmark(__doc__, further)
    if asked.rollouts == "vllm":
        os.environ.update(VLLM_ON_A_CPU)
    with tempfile.TemporaryDirectory() as folder:
        result = measure(asked, Path(folder))
    update_phase.report(asked, result)
    print(table(result))


if __name__ == "__main__":
    main()
