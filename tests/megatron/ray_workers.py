"""Ray's workers on the CPU, and what they record."""

import functools
import os

import cpu_as_cuda  # before anything else imports torch

FOLDER = "RAY_RECORDING"  # of what is recorded
MODEL = "RAY_RECORDING_MODEL"
FORGETS = "RAY_ENGINE_FORGETS"  # set: see runs.Engine


def set_up():
    """Called by Ray in each of its processes before it does anything: what imports the worker gets a recording."""
    from wrapt import register_post_import_hook

    register_post_import_hook(_record, "swift.ray.megatron.megatron_worker")
    register_post_import_hook(_keep_in_place, "swift.megatron.trainers.utils")
    register_post_import_hook(_use_shared_memory, "swift.ray.megatron.rollout.adapter")
    if FORGETS in os.environ:
        register_post_import_hook(_forget_features, "swift.ray.megatron.rollout.ray_vllm_engine")


def _record(module):
    worker = module.MegatronWorker
    start, end = worker.init_actor, worker.finalize

    @functools.wraps(start)
    def init_actor(self, *args, **kwargs):
        import made_up
        from megatron_child import record
        from recording import Recording

        made_up.use_small_vocabulary(os.environ[MODEL])
        self.recording = Recording()
        record(self.recording)
        return start(self, *args, **kwargs)

    @functools.wraps(end)
    def finalize(self):
        made = end(self)
        self.recording.write(os.environ[FOLDER], os.environ["RANK"])
        return made

    worker.init_actor, worker.finalize = init_actor, finalize


def _keep_in_place(module):
    """A model on the CPU is not moved there."""
    module.offload_megatron_model_to_cpu = module.load_megatron_model_to_gpu = cpu_as_cuda.nothing


def _use_shared_memory(module):
    """Weights go to vLLM as they do on an NPU: there is no memory of a GPU that another process could open."""
    module._is_ipc_supported = lambda: False


def _forget_features(module):
    """Without sleep Ray's engine drops prefixes alone at a sync (F32)."""
    engine = module.RayVllmEngine
    reset = engine.reset_prefix_cache

    def reset_prefix_cache(self):
        reset(self)
        self._run_in_loop(self.engine.reset_encoder_cache())

    engine.reset_prefix_cache = reset_prefix_cache
