"""`megatron rlhf` with Ray on the CPU, with made-up completions: `python ray_child.py CONFIG`, as ms-swift starts it from a YAML file.

Ray's workers record what those of `megatron_child.py` do, see ray_workers.py. Without rollout engines the driver makes
completions up, and hands out weights to nobody.
"""

import os
import sys
import tempfile
from pathlib import Path

import cpu_as_cuda  # before anything else imports torch
import made_up
import ray_workers
import yaml

STORE_BYTES = 256 << 20  # of Ray's objects


def use_made_up_completions():
    from swift.ray.megatron.checkpoint_engine.manager import CheckpointEngineManager
    from swift.ray.megatron.grpo_trainer import GRPOTrainer

    def _generate(self, samples):
        return made_up.rollouts(samples, self.template.tokenizer, self.num_generations)

    GRPOTrainer._generate = _generate
    CheckpointEngineManager.sync_weights = cpu_as_cuda.nothing


def main():
    config = Path(sys.argv[1])
    given = yaml.safe_load(config.read_text(encoding="utf-8"))
    import ray
    from swift.ray.megatron.pipeline import main as ray_main

    made_up.register_reward()
    made_up.use_small_vocabulary(given["model"])
    if not given["rollout"]["gpus"]:
        use_made_up_completions()
    os.environ[cpu_as_cuda.STORE] = str((config.parent / "ranks").resolve())
    os.environ[ray_workers.FOLDER] = str(config.parent.resolve())
    os.environ[ray_workers.MODEL] = str(given["model"])
    sys.argv[1:] = ["--config", str(config)]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as session:  # sockets need a short path
        ray.init(
            num_cpus=8,
            num_gpus=given["train"]["gpus"],
            include_dashboard=False,
            object_store_memory=STORE_BYTES,
            runtime_env={"worker_process_setup_hook": "ray_workers.set_up"},
            _temp_dir=session,
        )
        ray_main()
        ray.shutdown()


if __name__ == "__main__":
    main()
