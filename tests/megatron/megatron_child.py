"""`megatron rlhf` on the CPU with made-up completions: `python megatron_child.py RUNS`, under torchrun for more ranks.

RUNS is a JSON file with a list of runs (see runs.py): one run after the other, since half of a run is imports.
Each writes FOLDER/rank<N>.pt (see recording.py). ``--external_plugins`` is imported as in any run, and stays for the next.
"""

import gc
import json
import os
import sys
import time
from importlib import import_module
from pathlib import Path

import cpu_as_cuda  # before anything else imports torch
import made_up
import torch
import torch.distributed as dist
from recording import Recording
from sampling import use_sampled_completions

ONE_RANK = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_WORLD_SIZE": "1",
}


def use_made_up_completions():
    """Of the rollout only the engine is replaced: what goes in and out is ms-swift's."""
    from swift.megatron.trainers.rollout_mixin import MegatronRolloutMixin

    start = MegatronRolloutMixin._init_rollout_engine

    def _init_rollout_engine(self):
        self.args.use_vllm = False  # the arguments demand vLLM; from here on nothing needs it
        start(self)

    def _generate_completions(self, samples):
        samples = self._preprocess_inputs(samples)
        first = dist.get_rank(self._get_rollout_group()) * len(samples)
        made = made_up.rollouts(samples, self.template.tokenizer, self.num_generations, first)
        return self._postprocess_rollout_outputs(samples, made)

    MegatronRolloutMixin._init_rollout_engine = _init_rollout_engine
    MegatronRolloutMixin._generate_completions = _generate_completions


def record(recording):
    """Watch the loss, the log and the optimizer of ms-swift's trainer, or of a trainer that is derived from it."""
    from swift.megatron.trainers import MegatronGRPOTrainer
    from swift.megatron.trainers.base import BaseMegatronTrainer

    loss_func, on_log = MegatronGRPOTrainer.loss_func, BaseMegatronTrainer.on_log
    setup, train_step = BaseMegatronTrainer.setup_model_training, BaseMegatronTrainer.train_step

    def recorded_loss(self, output_tensor, data):
        batch = data["grpo_batch"]
        loss, metrics = loss_func(self, output_tensor, data)
        recording.add_micro_batch(output_tensor, batch, loss)
        return loss, metrics

    def recorded_log(self, logs, prefix=""):
        on_log(self, logs, prefix)
        recording.add_logs(self._last_logged_metrics)

    def recorded_setup(self):
        setup(self)
        recording.mode.update(mode_of(self))
        for model in (*self.unwrapped_models, *(getattr(self, "ref_models", None) or ())):
            recording.count(model)
        step = self.optimizer.step

        def recorded_step():
            recording.gradients.append(gradients(self))
            return step()

        if recording.with_gradients:
            self.optimizer.step = recorded_step

    def timed_step(self, *args):
        begun = time.perf_counter()
        made = train_step(self, *args)
        recording.seconds.append(time.perf_counter() - begun)
        return made

    MegatronGRPOTrainer.loss_func = recorded_loss
    BaseMegatronTrainer.on_log = recorded_log
    BaseMegatronTrainer.setup_model_training = recorded_setup
    BaseMegatronTrainer.train_step = timed_step


def mode_of(trainer):
    """What a test may assert about the layout that a run really had."""
    from megatron.core import mpu

    config = trainer.config
    parameters = [p for model in trainer.wrapped_models for p in model.parameters()]
    return {
        "trainer": type(trainer).__name__,
        "tp": mpu.get_tensor_model_parallel_world_size(),
        "pp": mpu.get_pipeline_model_parallel_world_size(),
        "dp": mpu.get_data_parallel_world_size(),
        "ep": mpu.get_expert_model_parallel_world_size(),
        "etp": mpu.get_expert_tensor_parallel_world_size(),
        "sequence_parallel": config.sequence_parallel,
        "recompute": config.recompute_granularity or "none",
        "layers": config.num_layers,
        "padding_free": trainer.args.padding_free,
        "trainable": sum(p.numel() for p in parameters if p.requires_grad),
        "frozen": sum(p.numel() for p in parameters if not p.requires_grad),
        "distributed_optimizer": trainer.args.use_distributed_optimizer,
    }


@torch.no_grad()
def gradients(trainer):
    """Every gradient as the optimizer finds it, before clipping, by the name and in the shape of a checkpoint.

    mcore-bridge exports them in the place of the weights: it joins what tensor, expert and pipeline parallelism split.
    """
    buffers = [b for m in trainer.wrapped_models for b in (*m.buffers, *m.expert_parallel_buffers)]
    own = [buffer.grad_data.clone() for buffer in buffers]
    for buffer in buffers:
        whole(buffer)
    weights = {}
    for model in trainer.wrapped_models:
        for parameter in model.parameters():
            gradient = getattr(parameter, "main_grad", None) if parameter.requires_grad else None
            weights[parameter] = parameter.data
            parameter.data = (
                torch.zeros_like(parameter.data) if gradient is None else gradient.to(parameter.dtype)
            )
    lora = trainer.args.tuner_type == "lora"
    exported = trainer.bridge.export_weights(trainer.unwrapped_models, peft_format=lora)
    made = {name: tensor.clone() for name, tensor in exported if tensor is not None}
    for parameter, data in weights.items():
        parameter.data = data
    for buffer, data in zip(buffers, own, strict=True):
        buffer.grad_data.copy_(data)
    return made if dist.get_rank() == 0 else {}


def whole(buffer):
    """Gather the parts of a buffer that the distributed optimizer left summed on one rank each."""
    size = buffer.data_parallel_world_size
    if size == 1 or not buffer.ddp_config.use_distributed_optimizer:
        return
    for bucket in buffer.buckets:
        parts = list(bucket.grad_data.chunk(size))
        mine = parts[dist.get_rank(buffer.data_parallel_group)].clone()
        dist.all_gather(parts, mine, group=buffer.data_parallel_group)


def clear():
    """Take down what a run of Megatron leaves in its process; ms-swift destroys the process groups."""
    from mcore_bridge.bridge import gpt_bridge
    from megatron.core import mpu
    from megatron.core.num_microbatches_calculator import unset_num_microbatches_calculator
    from megatron.core.rerun_state_machine import destroy_rerun_state_machine

    mpu.destroy_model_parallel()
    gpt_bridge.EP_PP_GROUP = None  # of experts over stages, kept for the process whatever its layout becomes
    unset_num_microbatches_calculator()
    destroy_rerun_state_machine()
    gc.collect()


def main():
    for name, value in ONE_RANK.items():
        os.environ.setdefault(name, value)
    runs = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    from swift.megatron import megatron_rlhf_main

    if cpu_as_cuda.DEVICE.type != "cpu":
        from tests.device.stand_in import have_ms_swift_choose

        import_module("swift.megatron.trainers.grpo_trainer")
        have_ms_swift_choose()
    from swift_grpo_ext.settings import current_settings

    made_up.register_reward()
    if runs[0]["sampled"]:
        use_sampled_completions()
    else:
        use_made_up_completions()
    recording = Recording()
    record(recording)
    for run in runs:
        arguments = run["arguments"]
        os.environ[cpu_as_cuda.STORE] = str(Path(run["folder"]).resolve() / "ranks")
        os.environ["SWIFT_GRPO_EXT_DISABLE"] = run["disable"]
        current_settings.cache_clear()
        sys.argv[1:] = arguments  # as ms-swift starts it
        made_up.use_small_vocabulary(arguments[arguments.index("--model") + 1])
        made_up.LENGTHS[:] = run["lengths"]
        recording.__init__(run["gradients"])
        megatron_rlhf_main(arguments)
        recording.write(run["folder"], os.environ["RANK"])
        clear()


if __name__ == "__main__":
    main()
