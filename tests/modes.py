"""Modes of a run, each with what shows that a run is in it: a plugin file, for the mode that MODE names.

`asserted_modes.py` hands it to the runs of several ranks, with the mode that their arguments ask for.

A run of another mode ends with an AssertionError at its first generation batch. docs/modes.md lists what was run.
"""

import os
from functools import wraps

from swift.rlhf_trainers import GRPOTrainer
from torch.distributed import get_backend, get_world_size
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel


def _models(trainer):
    """Every model of the run with its name; the reference and the teacher only where there is one."""
    models = {"policy": trainer.model, "reference": trainer.ref_model, "teacher": trainer.teacher_model}
    return {name: model for name, model in models.items() if model is not None}


def is_alone(trainer):
    assert trainer.args.world_size == 1
    assert trainer.accelerator.num_processes == 1


def is_ddp(trainer):
    assert isinstance(trainer.model_wrapped, DistributedDataParallel)
    assert get_world_size() == 2
    assert get_backend() == "gloo"


def is_zero(stage):
    def check(trainer):
        for name, model in _models(trainer).items():
            parameters = list(trainer.accelerator.unwrap_model(model).parameters())
            assert all(hasattr(one, "ds_tensor") == (stage == 3) for one in parameters), name
        assert trainer.model_wrapped.zero_optimization_stage() == stage
        assert get_world_size() == trainer.args.world_size

    return check


def is_fsdp2(trainer):
    assert trainer.is_fsdp_enabled
    assert get_world_size() == 2
    for name, model in _models(trainer).items():
        # Of models that do not train trl shards the layers, and leaves what is outside of them whole.
        parameters = {
            path: parameter
            for path, parameter in model.named_parameters()
            if name == "policy" or "layers." in path
        }
        whole = [path for path, parameter in parameters.items() if not isinstance(parameter, DTensor)]
        assert parameters, name
        assert not whole, (name, whole[:3])
        assert any(one.to_local().numel() < one.numel() for one in parameters.values()), name


def is_sequence_parallel(trainer):
    from swift.sequence_parallel import sequence_parallel

    assert trainer.template.sequence_parallel_size == sequence_parallel.world_size == get_world_size() == 2


MODES = {
    "alone": is_alone,
    "ddp": is_ddp,
    "zero0": is_zero(0),
    "zero1": is_zero(1),
    "zero2": is_zero(2),
    "zero3": is_zero(3),
    "fsdp2": is_fsdp2,
    "sequence parallel": is_sequence_parallel,
}


def check_once(mode):
    """Let every trainer of this process look at its mode when it makes its first generation batch."""
    original = GRPOTrainer._generate_and_score_completions

    @wraps(original)
    def checked(trainer, *args, **kwargs):
        MODES[mode](trainer)
        return original(trainer, *args, **kwargs)

    GRPOTrainer._generate_and_score_completions = checked


if "MODE" in os.environ:
    check_once(os.environ["MODE"])
