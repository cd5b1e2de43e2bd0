"""Let code that was written for CUDA and NCCL run on a CPU: `import cpu_as_cuda` first, in a process of its own.

Devices named "cuda", or by a number, become "cpu", or with ``CUDA_AS="made up"`` the device of tests/device; streams and
events do nothing; the generator of CUDA is the CPU's; NCCL is gloo. The stand-ins for transformer_engine and
flash-linear-attention are put on the path. It replaces functions of torch for good, so a process that did it can do
nothing else.
"""

import atexit
import contextlib
import os
import sys
from pathlib import Path

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # Megatron fuses small functions with torch.compile
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
sys.path.insert(0, str(Path(__file__).parent / "stand_in"))

import torch
import torch._dynamo  # noqa: F401  (its table of torch functions is made before some are replaced)
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

DEVICE = torch.device("cpu")
if os.environ.get("CUDA_AS") == "made up":  # a device that refuses to mix with the CPU, in its place
    from tests.device import made_up

    DEVICE = made_up.DEVICE
    PRESENT = contextlib.ExitStack()  # open until the process ends
    PRESENT.enter_context(made_up.present())
    atexit.register(PRESENT.close)
STORE = "CPU_AS_CUDA_STORE"  # a file that is not there yet, by which ranks find each other; else by environment variables
MEMORY = 16 << 30  # bytes that the device says it has
CAPABILITY = (8, 0)
TYPES = {
    "Float": torch.float32,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Int": torch.int32,
    "Long": torch.long,
    "Byte": torch.uint8,
    "Bool": torch.bool,
}


def on_cpu(device):
    """The device that is meant, with CUDA read as the one that stands in; what is no device stays as it is."""
    if isinstance(device, torch.device):
        return DEVICE if device.type == "cuda" else device
    if isinstance(device, str):
        return DEVICE if device.split(":")[0] == "cuda" else device
    return DEVICE if isinstance(device, int) and not isinstance(device, bool) else device


class OnCpu(TorchFunctionMode):
    """Every function of torch, with its device changed."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = getattr(function, "__name__", "")
        if name == "cuda" and args:
            return args[0].to(DEVICE)
        if name == "pin_memory" and args:
            return args[0]
        if name == "type" and len(args) == 1 and not kwargs:
            # Megatron's optimizer compares this text with "torch.cuda.FloatTensor".
            return "torch.cuda." + function(*args).rpartition(".")[2]
        if "device" in kwargs:
            kwargs["device"] = on_cpu(kwargs["device"])
        if name == "to" and len(args) > 1:
            args = (args[0], on_cpu(args[1]), *args[2:])
        return function(*args, **kwargs)


def nothing(*args, **kwargs):
    return None


def zero(*args, **kwargs):
    return 0


class Stream:
    """A stream in which everything has happened already."""

    def __init__(self, *args, **kwargs):
        self.device, self.cuda_stream = DEVICE, 0

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return False

    wait_stream = wait_event = synchronize = nothing

    def record_event(self, event=None):
        return event or Event()

    def query(self):
        return True


class Event(Stream):
    record = wait = nothing

    def elapsed_time(self, other):
        return 0.0


class Generators:
    def __getitem__(self, device):
        return torch.default_generator


class Properties:
    name, total_memory, multi_processor_count = "cpu as cuda", MEMORY, 1
    major, minor = CAPABILITY


def tensor_type(name, dtype):
    """A type such as torch.cuda.FloatTensor: it makes tensors, and isinstance takes it."""

    def make(cls, values=()):
        return (
            torch.empty(values, dtype=dtype)
            if isinstance(values, int)
            else torch.tensor(list(values), dtype=dtype)
        )

    return type(name, (), {"__new__": make})


def replace_cuda():
    cuda, stream = torch.cuda, Stream()
    cuda.Stream, cuda.Event = Stream, Event
    cuda.current_stream = cuda.default_stream = lambda *args, **kwargs: stream
    cuda.stream = cuda.device = lambda given: contextlib.nullcontext()
    cuda.is_available = lambda: False  # torch asks before it uses CUDA in earnest; Megatron does not ask
    cuda.current_device = lambda: DEVICE
    cuda.device_count = lambda: int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    cuda.get_device_properties = lambda *args, **kwargs: Properties()
    cuda.get_device_capability = lambda *args, **kwargs: CAPABILITY
    cuda.get_device_name = lambda *args, **kwargs: Properties.name
    for module in (cuda, cuda.random):
        module.get_rng_state = lambda *args, **kwargs: torch.get_rng_state()
        module.set_rng_state = lambda state, *args, **kwargs: torch.set_rng_state(state)
    cuda.default_generators = Generators()
    cuda._lazy_call = lambda call, **kwargs: call()
    for name in (
        *("manual_seed", "manual_seed_all", "seed", "init", "_lazy_init", "synchronize", "set_device"),
        *("empty_cache", "ipc_collect", "reset_peak_memory_stats", "reset_max_memory_allocated"),
    ):
        setattr(cuda, name, nothing)
    for name in (
        *("memory_allocated", "memory_reserved", "memory_cached"),
        *("max_memory_allocated", "max_memory_reserved"),
    ):
        setattr(cuda, name, zero)
    cuda.memory_stats = lambda *args, **kwargs: {}
    cuda.mem_get_info = lambda *args, **kwargs: (MEMORY, MEMORY)
    cuda.nvtx.range_push = cuda.nvtx.range_pop = nothing
    cuda.get_autocast_dtype = getattr(torch, "get_autocast_gpu_dtype", None)
    for name, dtype in TYPES.items():
        setattr(cuda, f"{name}Tensor", tensor_type(f"{name}Tensor", dtype))


def replace_modules():
    module = torch.nn.Module
    module.cuda = lambda self, device=None: self.to(DEVICE)
    move = module.to

    def to(self, *args, **kwargs):
        if "device" in kwargs:
            kwargs["device"] = on_cpu(kwargs["device"])
        return move(self, *map(on_cpu, args), **kwargs)

    module.to = to


def replace_nccl():
    start, group, exchange = dist.init_process_group, dist.new_group, dist.all_to_all_single

    def init_process_group(backend=None, *args, **kwargs):
        kwargs.pop("device_id", None)
        if file := os.environ.get(
            STORE
        ):  # a port that was free when a run was planned may not be when it begins
            place = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
            kwargs |= {"init_method": f"file://{file}", **place}
        start("gloo", *args, **kwargs)
        from accelerate import PartialState

        # With CUDA accelerate finds the ranks by itself; here it would believe in one process, and gather nothing.
        PartialState._reset_state()
        PartialState(cpu=True)

    def new_group(*args, **kwargs):
        kwargs.pop("pg_options", None)
        kwargs.pop("device_id", None)
        if kwargs.get("backend") is not None:
            kwargs["backend"] = "gloo"
        return group(*args, **kwargs)

    def all_to_all_single(output, tensor, output_split_sizes=None, input_split_sizes=None, *args, **kwargs):
        sizes = [
            size.tolist() if hasattr(size, "tolist") else size
            for size in (output_split_sizes, input_split_sizes)
        ]
        return exchange(output, tensor, *sizes, *args, **kwargs)

    for replaced in (init_process_group, new_group, all_to_all_single):
        setattr(dist, replaced.__name__, replaced)
        setattr(dist.distributed_c10d, replaced.__name__, replaced)


replace_cuda()
replace_modules()
replace_nccl()
OnCpu().__enter__()
