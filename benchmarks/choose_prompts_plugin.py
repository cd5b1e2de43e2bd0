"""A plugin of choose_prompts.py: prompts drawn by their own history, in place of ms-swift's order.

``CHOOSE_PROMPTS`` is the way. From the second epoch on ``skip`` divides the weight of a prompt by four with
each group in a row whose rewards were equal (GRESO, arXiv 2506.02177, skips with a probability); ``seek``
weighs by 4 p (1 - p) of its mean reward p. No weight is below a fiftieth, so that every prompt comes again.
"""

import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator

import torch
from swift.rewards import ORM, orms
from swift.rlhf_trainers.grpo_trainer import GRPOTrainer
from transformers import AutoTokenizer
from trl.trainer.grpo_trainer import RepeatSampler

WAY = os.environ["CHOOSE_PROMPTS"]
LEAST = 0.02
_draw = torch.Generator().manual_seed(0)
_groups: dict[int, list[list[float]]] = defaultdict(list)  # rewards of each group of a prompt, by its row_id


def weight(row: int) -> float:
    """How often a prompt is drawn, of one that is new."""
    history = _groups[row]
    if not history:
        return 1.0
    if WAY == "seek":
        rewards = [reward for group in history for reward in group]
        mean = sum(rewards) / len(rewards)
        return max(LEAST, 4 * mean * (1 - mean))
    silent = 0
    for group in reversed(history):
        if max(group) > min(group):
            break
        silent += 1
    return max(LEAST, 0.25**silent)


class Chosen(RepeatSampler):
    """Its first epoch is ms-swift's; then the prompts of each rollout are drawn by their weights."""

    def __iter__(self) -> Iterator[int]:
        if not any(_groups.values()):
            yield from super().__iter__()
            return
        for _ in range(self.num_samples // self.batch_size):
            weights = torch.tensor([weight(row) for row in range(self.num_samples)])
            drawn = torch.multinomial(weights, self.batch_size, generator=_draw).tolist()
            for _ in range(self.repeat_count):
                yield from (row for row in drawn for _ in range(self.mini_repeat_count))


class Remembered(ORM):
    """``ext_choice``, which remembers the rewards of each group, and what was asked."""

    def __init__(self, args: object = None, **options: object) -> None:
        super().__init__(args, **options)
        self._choice = orms["ext_choice"](args=args)
        self._tokenizer = AutoTokenizer.from_pretrained(os.environ["CHOOSE_PROMPTS_MODEL"])

    def __call__(self, completions: list[str], **columns: list) -> list[float]:
        scores = self._choice(completions, **columns)
        groups: dict[int, list[float]] = defaultdict(list)
        for row, score in zip(columns["row_id"], scores, strict=True):
            if row >= 0:
                groups[row].append(score or 0.0)
        for row, rewards in groups.items():
            _groups[row].append(rewards)
        trained = [place for place, row in enumerate(columns["row_id"]) if row >= 0]
        kinds = Counter(columns["kind"][place] for place in trained)
        if kinds:
            texts = [completions[place] for place in trained]
            line = {
                "step": columns["trainer_state"].global_step,
                "completions": kinds.total(),
                "tokens": sum(1 + len(ids) for ids in self._tokenizer(texts).input_ids),  # and the end
                "second": time.time(),
                "kinds": kinds,
                "rewards": groups,
            }
            with open(os.environ["CHOOSE_PROMPTS_TO"], "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        return scores


orms["remembered"] = Remembered

if WAY in ("skip", "seek"):
    usual = GRPOTrainer._get_train_sampler

    def chosen(trainer: GRPOTrainer, train_dataset: object = None) -> RepeatSampler:
        """ms-swift's sampler with another order."""
        sampler = usual(trainer, train_dataset)
        sampler.__class__ = Chosen
        return sampler

    GRPOTrainer._get_train_sampler = chosen
