"""`swift rlhf` on the CPU with the same completions, one process: `python transformers_child.py FOLDER ARGUMENTS`.

They are made up, or those of FOLDER/sampled.jsonl (see sampling.py). Writes FOLDER/rank0.pt (see recording.py).
"""

import json
import sys
from collections import defaultdict, deque
from importlib import import_module
from pathlib import Path

import made_up
from double import in_double
from recording import Recording


def use_completions(trainer, sampled):
    """Made-up ones, or of each row those that were sampled for it, in their order."""

    def rollouts(self, samples):
        if not sampled:
            return made_up.rollouts(samples, self.template.tokenizer, self.num_generations)
        return [made_up.rollout(*sampled[made_up.image_name(sample.images)].popleft()) for sample in samples]

    def _generate_completions(self, samples):
        samples = self._preprocess_inputs(samples)
        made = rollouts(self, samples)
        return self._postprocess_rollout_outputs(samples, made)

    trainer._generate_completions = _generate_completions


def read_sampled(file):
    """What `sampling.py` wrote, by the image."""
    sampled = defaultdict(deque)
    for line in file.read_text(encoding="utf-8").splitlines():
        name, *answer = json.loads(line)
        sampled[name].append(answer)
    return sampled


def record(trainer, recording):
    compute, on_log = trainer._compute_loss_and_metrics, trainer.log

    def recorded_loss(self, model, inputs, grpo_batch, *args, **kwargs):
        taken = []
        forward = self._get_per_token_logps_and_entropies

        def taking(*args, **kwargs):
            made = forward(*args, **kwargs)
            taken.append(made[0])
            return made

        self._get_per_token_logps_and_entropies = taking
        try:
            made = compute(self, model, inputs, grpo_batch, *args, **kwargs)
        finally:
            del self._get_per_token_logps_and_entropies
        recording.add_micro_batch(taken[0], grpo_batch, made[0])
        return made

    def recorded_log(self, logs, *args, **kwargs):
        recording.add_logs(logs)
        return on_log(self, logs, *args, **kwargs)

    trainer._compute_loss_and_metrics = recorded_loss
    trainer.log = recorded_log


def record_gradients(recording):
    """Take every gradient before it is clipped, and count in the model from the first step on."""
    from accelerate import Accelerator

    clip = Accelerator.clip_grad_norm_

    def recorded_clip(self, parameters, *args, **kwargs):
        named = self._models[0].named_parameters()
        recording.gradients.append({name: p.grad.clone() for name, p in named if p.grad is not None})
        return clip(self, parameters, *args, **kwargs)

    Accelerator.clip_grad_norm_ = recorded_clip


def recur_in_double():
    """As the stand-in of flash-linear-attention does."""
    for family in ("qwen3_5", "qwen3_5_moe"):
        module = import_module(f"transformers.models.{family}.modeling_{family}")
        module.torch_chunk_gated_delta_rule = in_double(module.torch_chunk_gated_delta_rule)


def main():
    folder, *arguments = sys.argv[1:]
    from swift.pipelines.train.rlhf import rlhf_main
    from swift.rlhf_trainers.grpo_trainer import GRPOTrainer

    recur_in_double()
    made_up.register_reward()
    made_up.use_small_vocabulary(arguments[arguments.index("--model") + 1])
    recording = Recording()
    file = Path(folder) / "sampled.jsonl"
    use_completions(GRPOTrainer, read_sampled(file) if file.exists() else None)
    record(GRPOTrainer, recording)
    record_gradients(recording)
    rlhf_main(arguments)
    recording.write(folder, 0)


if __name__ == "__main__":
    main()
