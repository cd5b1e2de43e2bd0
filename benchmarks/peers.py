"""One update phase by TRL's GRPOTrainer, by ms-swift's and by ours: same model, prompts, completions, loss.

    make bench-peers   # which makes an environment for the newest TRL (constraints/trl.txt) and runs
    python benchmarks/peers.py --size mini --repeats 3 --other .swift_grpo_ext/envs/trl/bin/python \\
        --json peers.json

Measured is each trainer's own training step with made-up completions and rewards: preparing inputs, the
passes that it makes, loss and backward; ms-swift's and ours in turn, each TRL in a process of its own, since
ms-swift takes TRL's trainer apart when it is imported. Passes that a trainer makes or leaves out show in the
tokens; how equal the work is shows in the gradient's norm.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import update_phase  # first: it puts the package on the path
from bench_measure import exact_heap, machine, median
from bench_models import build_checkpoint
from bench_operations import Case
from bench_trainers import Update, made_up_rewards, made_up_rollouts, made_up_tokens, run_update

ADAPTED = r".*language_model.*\.(q|k|v|o|gate|up|down)_proj"
TEMPERATURE = 0.9  # ms-swift's default


def trl_trainer(model: Path, dataset: Path, output: Path, case: Case) -> Any:
    """TRL's trainer, set as ms-swift sets its own, not started."""
    from datasets import Dataset, Image, List
    from peft import LoraConfig
    from transformers import Qwen2_5_VLForConditionalGeneration
    from trl import GRPOConfig, GRPOTrainer

    policy = Qwen2_5_VLForConditionalGeneration.from_pretrained(model, attn_implementation="sdpa")
    policy.model.visual.requires_grad_(False)
    row = json.loads(dataset.read_text(encoding="utf-8").splitlines()[0])
    prompt = [{"role": "user", "content": row["messages"][0]["content"].removeprefix("<image>")}]
    rows = Dataset.from_dict({"prompt": [prompt] * 8, "images": [row["images"]] * 8})
    rows = rows.cast_column("images", List(Image()))
    config = GRPOConfig(
        output_dir=str(output),
        per_device_train_batch_size=case.group,
        gradient_accumulation_steps=1,
        num_generations=case.group,
        max_completion_length=case.completion,
        beta=case.beta,
        loss_type="grpo",
        temperature=TEMPERATURE,
        learning_rate=0.0,
        max_steps=1,
        gradient_checkpointing=case.checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        use_cpu=True,
        bf16=False,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        model_init_kwargs={"attn_implementation": "sdpa", "dtype": "float32"} if case.beta else None,
    )
    adapters = LoraConfig(r=8, lora_alpha=32, target_modules=ADAPTED, bias="none") if case.lora else None
    return GRPOTrainer(
        model=policy, reward_funcs=_unused, args=config, train_dataset=rows, peft_config=adapters
    )


def _unused(completions: list[Any], **columns: Any) -> list[float]:
    return [0.0] * len(completions)


def made_up_for_trl(trainer: Any, case: Case, seed: int) -> None:
    """The completions and rewards that ms-swift's trainers get of `made_up_rollouts`."""
    draw = made_up_tokens(trainer.processing_class.tokenizer, case.completion, seed)

    def answers(prompt_ids: list[list[int]], *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        trainer.prompt_tokens = len(prompt_ids[0])
        found = [draw() for _ in prompt_ids]
        return (found, None) if version("trl") >= "1" else (found, None, {})

    trainer._generate_single_turn = answers
    scorer = type("Scorer", (), {})()
    made_up_rewards(scorer, seed)
    trainer._calculate_rewards = lambda inputs, *args, **kwargs: scorer._compute_rewards_per_func(inputs)


def one(trainer: Any, case: Case, seed: int, keep_gradients: bool = False) -> Update:
    """One update phase of a trainer of any kind."""
    (made_up_rollouts if hasattr(trainer, "template") else made_up_for_trl)(trainer, case, seed)
    trainer.model.zero_grad(set_to_none=True)
    return run_update(trainer, keep_gradients)


def measure(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All figures of the trainers that this environment has."""
    case = update_phase.case_of(asked)
    trainers: dict[str, Any] = {}
    with exact_heap():  # memory and comparison
        if asked.trl_only:
            model = build_checkpoint("qwen2_5_vl", update_phase.SHAPES[asked.size], case, folder / "m")
            dataset = update_phase.build_dataset(case, folder / "data")
            trainers = {f"trl {version('trl')}": trl_trainer(model, dataset, folder / "trl", case)}
        else:
            trainers = update_phase.build_both(asked, case, folder)
        for trainer in trainers.values():
            one(trainer, case, 0)  # with the self-check, and with what a process loads and allocates once
        first = {name: one(trainer, case, 0, keep_gradients=True) for name, trainer in trainers.items()}
    last: dict[str, Update] = {}
    seconds: dict[str, list[float]] = {name: [] for name in trainers}
    for repeat in range(asked.repeats):
        for name, trainer in trainers.items():
            last[name] = one(trainer, case, repeat)
            seconds[name].append(last[name].seconds)
    return {name: _figures(trainers[name], seconds[name], first, last[name], name, case) for name in trainers}


def _figures(
    trainer: Any, seconds: list[float], first: dict[str, Update], last: Update, name: str, case: Case
) -> dict[str, Any]:
    done, stock = first[name], first.get("stock")
    found = {
        "seconds": median(seconds),
        "all_seconds": seconds,
        "peak_bytes": update_phase.bytes_of_weights(trainer) + done.peak.above,
        "tokens": done.tokens,
        "tower_calls": done.tower_calls,
        "phases": last.phases,
        "grad_norm": sum(float(grad.square().sum()) for grad in done.gradients.values()) ** 0.5,
        "mean_logp": float(done.logps.mean()) if done.logps is not None else None,
    }
    if stock is not None and stock.logps is not None and done.logps is not None:
        found["logp_max_diff"] = float((done.logps - stock.logps).abs().max())
        if not case.lora:  # adapters begin at random
            found["grad_rel_diff"] = update_phase.gradient_difference(done, stock)
    return found


def _trl_of(python: Path, asked: argparse.Namespace, out: Path) -> dict[str, Any]:
    """The figures of the TRL that another Python has."""
    words = [python.absolute(), __file__, "--trl-only", "--json", out]
    options = ("size", "group", "image_tokens", "text_tokens", "completion", "beta", "repeats", "tuner")
    for name in options:
        words += [f"--{name.replace('_', '-')}", getattr(asked, name)]
    words += ["--no-checkpointing"] if asked.no_checkpointing else []
    subprocess.run(list(map(str, words)), check=True, env=os.environ.copy())
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


def table(rows: dict[str, dict[str, Any]]) -> str:
    """As Markdown, slowest first."""
    lines = [
        "| trainer | seconds | peak memory | tokens | tower calls | gradient norm |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in sorted(rows.items(), key=lambda pair: -pair[1]["seconds"]):
        cells = [name, f"{row['seconds']:.2f}", f"{row['peak_bytes'] / 2**20:.0f} MiB", row["tokens"]]
        lines.append(
            "| " + " | ".join(map(str, [*cells, row["tower_calls"], f"{row['grad_norm']:.5g}"])) + " |"
        )
    return "\n".join(lines)


def all_rows(asked: argparse.Namespace, folder: Path) -> dict[str, dict[str, Any]]:
    """The figures of every trainer: those of this environment, and the TRL of another one."""
    asked.lora_dropout = 0.0  # draws other numbers in each trainer
    rows = measure(asked, folder)
    alone = asked.trl_only or asked.family != "qwen2_5_vl"  # which `trl_trainer` builds
    for python in () if alone else filter(None, (Path(sys.executable), asked.other)):
        rows |= _trl_of(python, asked, folder / "trl.json")
    return rows


def options_of_peers(parser: argparse.ArgumentParser) -> None:
    """What says where the other trainers are."""
    parser.add_argument("--other", type=Path, help="Python of an environment with another TRL")
    parser.add_argument("--trl-only", action="store_true", help=argparse.SUPPRESS)


def main() -> None:
    asked = update_phase.arguments_of_benchmark(__doc__, options_of_peers)
    with tempfile.TemporaryDirectory() as folder:
        rows = all_rows(asked, Path(folder))
    if asked.trl_only:
        asked.json.write_text(json.dumps(rows), encoding="utf-8")
        return
    case = update_phase.case_of(asked)
    import torch

    result = {
        "rows": rows,
        "size": asked.size,
        "case": case.__dict__,
        "machine": machine(torch.device("cpu")),
    }
    print(table(rows))
    if asked.json:
        asked.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
