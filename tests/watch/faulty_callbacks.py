"""A plugin that breaks gradients or log-probs of a run on purpose."""

from swift.callbacks import TrainerCallback, callbacks_map


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


callbacks_map["test_nan_gradient"] = NanGradient
callbacks_map["test_nan_module"] = NanModule
