"""A plugin that breaks gradients, log-probs or figures of a run on purpose."""

import random

from swift.callbacks import TrainerCallback, callbacks_map
from swift.infer_engine.protocol import (
    ChatCompletionResponse,
    ChatCompletionResponseChoice,
    ChatMessage,
    RolloutOutput,
    UsageInfo,
)


class NanGradient(TrainerCallback):
    """From the second step on, one parameter's gradient is NaN."""

    def on_step_begin(self, args, state, control, model=None, **kwargs):
        if state.global_step == 1:
            weight = dict(model.named_parameters())["model.language_model.layers.0.mlp.up_proj.weight"]
            weight.register_hook(lambda gradient: gradient * float("nan"))


class NanModule(TrainerCallback):
    """From the second step on, one module of the last layer gives NaN for its last row."""

    def on_step_begin(self, args, state, control, model=None, **kwargs):
        if state.global_step == 1:

            def spoil(module, inputs, output):
                if not module.training:  # let rollouts pass
                    return output
                spoiled = output.clone()
                spoiled[-1, -4:] *= float("nan")  # the last tokens of the last row, in packs of a group too
                return spoiled

            model.get_submodule("model.language_model.layers.1.mlp").register_forward_hook(spoil)


class NanMetric(TrainerCallback):
    """One micro-batch's entropy is NaN in every step."""

    def on_step_begin(self, args, state, control, **kwargs):
        self.trainer._metrics["train"]["completions/entropy_of_test"].extend([1.0, float("nan"), 3.0])


class Thousandths(TrainerCallback):
    """The model answers with boxes between 0 and 1000, far from the image of some 50 pixels."""

    def on_train_begin(self, args, state, control, **kwargs):
        numbers, tokenizer = random.Random(0), self.trainer.template.tokenizer

        def answer(infer_requests, *args, **kwargs):
            return [
                self.output(f"[{numbers.randint(500, 700)}, 600, 900, 950]", tokenizer)
                for _ in infer_requests
            ]

        self.trainer._engine_infer = answer

    def output(self, text, tokenizer):
        ids = tokenizer(text)["input_ids"]
        choice = ChatCompletionResponseChoice(0, ChatMessage("assistant", text), "stop", token_ids=ids)
        usage = UsageInfo(0, len(ids), len(ids))
        return RolloutOutput(response=ChatCompletionResponse("made up", [choice], usage))


callbacks_map["test_thousandths"] = Thousandths
callbacks_map["test_nan_metric"] = NanMetric
callbacks_map["test_nan_gradient"] = NanGradient
callbacks_map["test_nan_module"] = NanModule
