"""The host's trainer and ours, both with scripted completions, writing down every micro-batch."""

import random

from pairs.scripted import WORDS, Scripted
from swift.rlhf_trainers import GRPOTrainer as HostGRPOTrainer

from swift_grpo_ext.trainer.grpo import GRPOTrainer
from swift_grpo_ext.trainer.loss_fixes import no_phantom_teacher

FIGURES = ("kl", "entropy", "clipping", "fipo", "rollout_correction")
LENGTHS = {"ragged": (1, 9), "equal": (4, 4), "one_word": (1, 1), "cut": (30, 40), "mixed_cut": (1, 30)}


class Recorded(Scripted):
    """Mixin: what each micro-batch gave, and where the run took the parameters."""

    latest = None  # of this process
    script = "ragged"

    def __init__(self, model, *args, **kwargs):
        super().__init__(model, *args, **kwargs)
        Recorded.latest = self
        self.micro_batches, self._figures = [], {}
        self.start = self._parameters()

    def _parameters(self):
        named = self.accelerator.unwrap_model(self.model).named_parameters()
        return {name: one.detach().clone() for name, one in named if one.requires_grad}

    def train(self, *args, **kwargs):
        result = super().train(*args, **kwargs)
        self.end = self._parameters()
        return result

    def compute_loss(self, model, inputs, *args, **kwargs):
        self._figures = {}
        loss = super().compute_loss(model, inputs, *args, **kwargs)
        self.micro_batches.append({"loss": loss.item(), **self._figures})
        return loss

    def _update_metrics(self, metrics_data):
        super()._update_metrics(metrics_data)
        for name in FIGURES:
            found = metrics_data.get(name)
            figures = found if isinstance(found, dict) else {"": found}
            for part, value in figures.items():
                if value is not None and not isinstance(value, list):
                    self._figures[f"{name} {part}".strip()] = float(value)

    def _answer(self, request, place):
        output = super()._answer(request, place)
        images, texts = len(request.images), [str(message["content"]) for message in request.messages]
        generator = random.Random(
            f"{texts} {images} {place} {self.state.global_step * (self.script != 'ragged')}"
        )
        words = generator.choices(WORDS.split(), k=generator.randint(*LENGTHS[self.script]))
        tokens = self.template.tokenizer.encode(" ".join(words))
        choice = output.response.choices[0]
        choice.finish_reason = "length" if len(tokens) > self.max_completion_length else "stop"
        choice.token_ids = tokens[: self.max_completion_length]
        choice.message.content = self.template.tokenizer.decode(choice.token_ids)
        return output


class Ours(Recorded, GRPOTrainer):
    """With everything of this package; a fallback to the stock passes would compare little."""

    def train(self, *args, **kwargs):
        result = super().train(*args, **kwargs)
        assert "self-check failed" not in self.passes.features.why_off.values()
        return result


class Stock(Recorded, HostGRPOTrainer):
    """Without, but for F2 of docs/findings.md: else it has no fipo, no real and no off-policy mask."""

    def _compute_loss_and_metrics(self, model, model_inputs, grpo_batch):
        with no_phantom_teacher(self, grpo_batch):
            return super()._compute_loss_and_metrics(model, model_inputs, grpo_batch)
