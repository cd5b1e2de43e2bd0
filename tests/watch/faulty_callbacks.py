"""A plugin that breaks gradients or log-probs of a run on purpose."""

import torch
from swift.callbacks import TrainerCallback, callbacks_map


class NanGradient(TrainerCallback):
    """From the second step on, one parameter's gradient is NaN."""

    def on_step_begin(self, args, state, control, model=None, **kwargs):
        if state.global_step == 1:
            weight = dict(model.named_parameters())["model.language_model.layers.0.mlp.up_proj.weight"]
            weight.register_hook(lambda gradient: gradient * float("nan"))


class NanModule(TrainerCallback):
    """From the second step on, one module gives NaN for its last row."""

    def on_step_begin(self, args, state, control, model=None, **kwargs):
        if state.global_step == 1:

            def spoil(module, inputs, output):
                if not module.training:  # let rollouts pass
                    return output
                return torch.cat([output[:-1], output[-1:] * float("nan")])

            model.get_submodule("model.language_model.layers.1.mlp").register_forward_hook(spoil)


callbacks_map["test_nan_gradient"] = NanGradient
callbacks_map["test_nan_module"] = NanModule
