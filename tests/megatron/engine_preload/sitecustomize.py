"""On PYTHONPATH: vLLM's engine, in a process of its own, keeps weights on the CPU where a sync of weights finds them."""

import sys

if any("multiprocessing.spawn" in word for word in sys.orig_argv):
    from importlib.util import find_spec

    if find_spec("wrapt"):  # a process of another environment has it not
        from wrapt import register_post_import_hook

        def prepare(_):
            from tests.engines import cpu_vllm  # noqa: F401

        register_post_import_hook(prepare, "vllm.v1.worker.cpu_worker")
