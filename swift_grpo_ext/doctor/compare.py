"""``swift-grpo-ext compare-engine``: a few rows through an engine and through the trainer, without a run."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from swift_grpo_ext.errors import HostRunError
from swift_grpo_ext.registration import register

if TYPE_CHECKING:
    from swift_grpo_ext.trainer.engine import EngineCheck
    from swift_grpo_ext.trainer.grpo import GRPOTrainer

# A step of training that is prepared and never taken; what the user gives comes behind it.
STEP: Mapping[str, object] = {
    "rlhf_type": "grpo",
    "tuner_type": "full",
    "reward_funcs": "format",
    "num_generations": 2,
    "max_steps": 1,
    "beta": 0,
    "learning_rate": 0,
    "save_strategy": "no",
    "report_to": "none",
    "temperature": 1.0,
}


def words_of(
    rows: Path, model: str, completions: int, server: str, output: str, more: Sequence[str]
) -> list[str]:
    """The arguments of ``swift rlhf`` for a comparison; words of the user's own win."""
    chosen = {**STEP, "model": model, "dataset": str(rows), "output_dir": output}
    chosen |= {"per_device_train_batch_size": completions}
    if server:
        chosen |= {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": server}
    given = {word.removeprefix("--").split("=")[0] for word in more if word.startswith("--")}
    defaults = (f"--{name}={value}" for name, value in chosen.items() if name not in given)
    return [*defaults, *more]


def compare(
    rows: Path, model: str, *, completions: int = 8, server: str = "", more: Sequence[str] = ()
) -> tuple[bool, str]:
    """Whether an engine samples from the trainer's policy, and the page that says so.

    Args:
        rows: Dataset, of which the first rows are answered.
        model: Checkpoint of the trainer, and of an engine in this process.
        completions: That are sampled and compared, at least 2.
        server: Address of ``swift rollout``; empty: what ``more`` asks for, else transformers.
        more: Further arguments of ``swift rlhf``.

    Raises:
        HostRunError: Nothing could be compared.
    """
    with tempfile.TemporaryDirectory() as output:
        check = _checked(words_of(rows, model, completions, server, output, more), completions)
    if check.record is None or (check.record.ratio is None and not check.record.text):
        raise HostRunError(
            "nothing was compared", where=str(rows), fix="the lines above say what the engine does not return"
        )
    record = check.record
    lines = [record.text or f"agree: mean exp|d| {record.ratio:.4g}, mean |d| {record.mean:.2g} nats a token"]
    lines += [f"  {turn}" for turn in check.history[-1].turns]
    return not record.rule, "\n".join(filter(None, [*lines, record.note]))


def _checked(words: Sequence[str], completions: int) -> "EngineCheck":
    """The engine check of a trainer that has answered its first batch."""
    from swift.pipelines.train.rlhf import SwiftRLHF

    register()  # as the plugin file does

    class CheckOnly(SwiftRLHF):
        def train(self, trainer: "GRPOTrainer") -> "GRPOTrainer":
            return trainer

    trainer: GRPOTrainer = CheckOnly(list(words)).main()
    trainer.engine_check.rows = completions
    trainer.model.train()
    batch = next(iter(trainer.get_train_dataloader()))
    trainer._generate_completions(trainer.to_samples(batch))
    return trainer.engine_check
