"""Minimal stand-ins for patch targets that the installed releases have fixed, or that are not installed."""

from types import SimpleNamespace

import torch


class OldOffload:
    """Of `DeepSpeedZeRoOffload` in DeepSpeed 0.18.9: registering numbers the modules on, no more."""

    def __init__(self, module, coordinator):
        self.module, self.coordinator = module, coordinator

    def get_param_coordinator(self):
        return self.coordinator

    def _register_deepspeed_module(self, module, count=[0]):  # noqa: B006 - as there
        module.ds_id = count[0]
        for child in module.children():
            count[0] += 1
            self._register_deepspeed_module(child, count=count)


class OldOptimizer:
    """Of `DeepSpeedZeroOptimizer` in DeepSpeed 0.18.9: one tensor, its gradient summed in host memory."""

    def __init__(self, stage=2):
        self.partition_gradients = stage == 2
        self.micro_step_id = 0
        self.accumulated_grads_in_cpu = None

    def async_accumulate_grad_in_cpu_via_gpu(self, param):
        def accumulate_gradients():
            param.grad_accum.add_(self.accumulated_grads_in_cpu)

        def copy_gradients_to_cpu():
            self.accumulated_grads_in_cpu.copy_(param.grad_accum)

        if self.accumulated_grads_in_cpu is None:
            self.accumulated_grads_in_cpu = torch.zeros_like(param.grad_accum)

        if self.micro_step_id > 0:
            accumulate_gradients()
        else:
            copy_gradients_to_cpu()

    def step(self, micro_gradients):
        """The sum that a step sees. With ZeRO-2 each gradient goes through host memory, the last one comes from
        the device; with ZeRO-1 gradients are summed on the device, and their sum goes there once."""
        steps = list(enumerate(micro_gradients))
        if not self.partition_gradients:
            steps = [(len(steps) - 1, sum(gradient for _, gradient in steps))]
        for self.micro_step_id, gradient in steps:
            param = SimpleNamespace(grad_accum=gradient.clone())
            self.async_accumulate_grad_in_cpu_via_gpu(param)
        return param.grad_accum


class Engine:
    """Of the host's `VllmEngine`: sampling parameters of a request. vLLM is not installed here."""

    def __init__(self, config, tokenizer):
        self.config, self.tokenizer = config, tokenizer

    def _prepare_generation_config(self, request_config):
        return SimpleNamespace(bad_words=request_config)
