"""A plugin that fails on rank 1 in the second step, where FAILS_IN says."""

import os
import signal

import torch
from swift.rewards import ORM, orms
from swift.template.base import Template

WHERE = os.environ.get("FAILS_IN", "")
FAILS_HERE = os.environ.get("RANK") == "1"


def fail(where):
    if FAILS_HERE and where == WHERE:
        if where == "process":
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError(f"the {where} of rank 1 is broken")


class Failing(ORM):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        fail("construction")

    def __call__(self, completions, trainer_state, **kwargs):
        if trainer_state.global_step == 1:
            fail("reward")
            fail("process")
        return [float(len(text) % 2) for text in completions]


def failing_after(calls, function, where):
    """The function, broken after some calls."""
    count = [0]

    def call(*args, **kwargs):
        count[0] += 1
        if count[0] > calls:
            fail(where)
        return function(*args, **kwargs)

    return call


orms["failing"] = Failing
if WHERE == "template":
    Template.encode = failing_after(20, Template.encode, WHERE)
if WHERE == "optimizer":
    torch.optim.AdamW.step = failing_after(1, torch.optim.AdamW.step, WHERE)
if WHERE == "rollout":
    from transformers import GenerationMixin

    GenerationMixin.generate = failing_after(1, GenerationMixin.generate, WHERE)

# What our trainer calls, in the second step or, where there is one for each micro-batch, at its first.
COLLABORATORS = {
    "rows": ("swift_grpo_ext.trainer.rows:Rows.number_prompts", 1),
    "completions": ("swift_grpo_ext.trainer.rollout:Rollout.trainable", 1),
    "scores": ("swift_grpo_ext.trainer.scoring:Scoring.settled", 1),
    "advantages": ("swift_grpo_ext.trainer.baselines:Baselines.advantages", 1),
    "pass": ("swift_grpo_ext.trainer.one_pass:OnePass.run", 4),
    "loss": ("swift_grpo_ext.trainer.grpo:GRPOTrainer._compute_loss_and_metrics", 1),
    "log": ("swift_grpo_ext.trainer.grpo:GRPOTrainer.log", 1),
    "save": ("swift.rlhf_trainers:GRPOTrainer.save_model", 0),
}
if WHERE in COLLABORATORS:
    from swift_grpo_ext.compat.patch import Target

    path, calls = COLLABORATORS[WHERE]
    target = Target(path)
    target.replace(failing_after(calls, target.get(), WHERE))
