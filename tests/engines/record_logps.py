"""A plugin for the tests: writes down how far vLLM's log-probs of the sampled tokens are from the trainer's."""

import json
import os
from importlib import import_module

from swift.trainers.trainer_factory import TrainerFactory

module, _, name = TrainerFactory.TRAINER_MAPPING["grpo"].rpartition(".")
trainer_class = getattr(import_module(module), name)
compute = trainer_class._get_per_token_logps_and_entropies


def compute_and_compare(self, model, model_inputs, grpo_batch, **kwargs):
    """``logps`` and ``rollout_per_token_logps`` are ``(batch, completion)``."""
    logps, entropies = compute(self, model, model_inputs, grpo_batch, **kwargs)
    sampled = grpo_batch.rollout_per_token_logps
    if logps is not None and sampled is not None:  # None: the old pass, left out
        mask = grpo_batch.completion_mask.bool()
        row = {
            "step": self.state.global_step,
            "tokens": int(mask.sum()),
            "distance": (logps - sampled)[mask].abs().max().item(),
            "spread": sampled[mask].std().item(),
        }
        with open(os.environ["RECORD_LOGPS"], "a") as file:
            file.write(json.dumps(row) + "\n")
    return logps, entropies


trainer_class._get_per_token_logps_and_entropies = compute_and_compare
