"""Ray's workers on the CPU, and what they record."""

import functools
import os

import cpu_as_cuda  # noqa: F401  (before anything else imports torch)

FOLDER = "RAY_RECORDING"  # of what is recorded
MODEL = "RAY_RECORDING_MODEL"


def set_up():
    """Called by Ray in each of its processes before it does anything: what imports the worker gets a recording."""
    from wrapt import register_post_import_hook

    register_post_import_hook(_record, "swift.ray.megatron.megatron_worker")


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
