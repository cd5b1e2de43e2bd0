"""A plugin for the tests: writes down what the engine sampled, and how far its log-probs are from the trainer's.

``rollouts.jsonl`` in the folder ``RECORD`` has a row for each completion, ``logps.jsonl`` one for each pass that
has log-probs of the policy.
"""

import json
import os
from importlib import import_module
from pathlib import Path

from swift.trainers.trainer_factory import TrainerFactory

from swift_grpo_ext.models.families import family_of

module, _, name = TrainerFactory.TRAINER_MAPPING["grpo"].rpartition(".")
trainer_class = getattr(import_module(module), name)
receive = trainer_class._postprocess_rollout_outputs
compute = trainer_class._get_per_token_logps_and_entropies


def write(table, row):
    with open(Path(os.environ["RECORD"]) / f"{table}.jsonl", "a") as file:
        file.write(json.dumps(row) + "\n")


def receive_and_count(self, samples, outputs):
    facts = family_of(self.template.config)
    forbidden = facts.forbidden_token_ids if facts else ()  # of language models none are
    for output in outputs:
        tokens = output.response.choices[0].token_ids
        write("rollouts", {"tokens": len(tokens), "forbidden": sum(token in forbidden for token in tokens)})
    return receive(self, samples, outputs)


def compute_and_compare(self, model, model_inputs, grpo_batch, **kwargs):
    """``logps`` and ``rollout_per_token_logps`` are ``(batch, completion)``."""
    logps, entropies = compute(self, model, model_inputs, grpo_batch, **kwargs)
    sampled = grpo_batch.rollout_per_token_logps
    if logps is not None and sampled is not None:  # None: the old pass, left out
        mask = grpo_batch.completion_mask.bool()
        row = {
            "step": self.state.global_step,
            "tokens": int(mask.sum()),
            "distance": (logps.detach() - sampled)[mask].abs().max().item(),
            "spread": sampled[mask].std().item(),
        }
        write("logps", row)
    return logps, entropies


trainer_class._postprocess_rollout_outputs = receive_and_count
trainer_class._get_per_token_logps_and_entropies = compute_and_compare
