"""An accelerator made of main memory: it refuses to mix with the CPU, counts host waits, and can run full.

Its tensors are a wrapper subclass around ordinary CPU tensors, under the device type that PyTorch keeps for
backends written in Python. What a GPU refuses (operands on two devices) is refused; what makes the host wait
for a GPU (``item``, ``tolist``, ``nonzero``, copies to the CPU) is counted by phase and by the line that asked;
copies to the device are counted by what they would wait for; live storages are added up as CUDA's allocator would
see them, with a limit that raises ``torch.OutOfMemoryError``. What it does not prove, docs/modes.md says: kernels,
streams, autotuners, NCCL.
"""

import contextlib
import os
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

from tests.device.ledger import Ledger

NAME = os.environ.get("MADE_UP_NAME", "madeup")  # accelerate takes fp16 on devices of some names alone
WAITING = (
    "_local_scalar_dense",
    "is_nonzero",
    "aten.nonzero",
    "aten.equal",
    "masked_select",
    "_unique",
    "unique_",
)
MAY_MIX = ("copy", "_to_copy", "lift_fresh", "_copy_from")
INDEXING = ("aten.index", "aten.index_put", "aten._index_put_impl")

# CUDA's lists (PyTorch's "Autocast Op Reference"), as far as models use them: to 16 bits, and to 32.
TO_HALF = {"linear", "matmul", "bmm", "mm", "addmm", "baddbmm", "conv1d", "conv2d", "conv3d", "einsum",
           "scaled_dot_product_attention", "__matmul__"}  # fmt: skip
TO_SINGLE = {"softmax", "log_softmax", "layer_norm", "exp", "log", "pow", "sum", "prod", "cumsum", "rsqrt", "norm",
             "cross_entropy", "nll_loss", "logsumexp", "softplus", "__pow__"}  # fmt: skip
# A CPU without units for 16 bits takes a hundred times as long for these; GPUs add up their products in 32 bits, too.
PRODUCTS = tuple(
    f"aten.{name}." for name in ("mm", "bmm", "addmm", "baddbmm", "convolution", "linear", "matmul")
)

ledger = Ledger(NAME)


class _Module(_DummyBackendModule):
    """What ``torch.madeup`` answers."""

    def set_device(self, *_: Any) -> None: ...
    def synchronize(self, *_: Any) -> None: ...
    def manual_seed(self, _: int) -> None: ...
    def get_rng_state(self, *_: Any) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, *_: Any) -> None:
        torch.set_rng_state(state)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]

    def empty_cache(self) -> None: ...
    def is_bf16_supported(self, *_: Any) -> bool:
        return True

    def memory_allocated(self, *_: Any) -> int:
        return ledger.allocated

    def memory_reserved(self, *_: Any) -> int:
        return ledger.allocated

    def max_memory_allocated(self, *_: Any) -> int:
        return max(ledger.peaks.values(), default=0)

    def reset_peak_memory_stats(self, *_: Any) -> None:
        ledger.peaks.clear()

    def mem_get_info(self, *_: Any) -> tuple[int, int]:
        return ledger.limit - ledger.allocated, ledger.limit  # bytes: free, in all


_setup_privateuseone_for_python_backend(NAME, backend_module=_Module())
DEVICE = torch.device(NAME, 0)  # a rank's only one


class OnDevice(torch.Tensor):
    """A tensor on the device; ``raw`` holds its values."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    raw: torch.Tensor

    @staticmethod
    def __new__(cls, raw: torch.Tensor) -> "OnDevice":
        self = torch.Tensor._make_wrapper_subclass(
            cls,
            raw.size(),
            strides=raw.stride(),
            storage_offset=raw.storage_offset(),
            dtype=raw.dtype,
            device=DEVICE,
        )
        self.raw = raw
        self.storage_kept = raw.untyped_storage()
        ledger.add(raw)
        return self

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(op, args, kwargs or {})

    def __repr__(self) -> str:
        return f"{NAME}({self.raw!r})"

    def tolist(self) -> Any:
        ledger.wait("tolist")
        return self.raw.tolist()

    def untyped_storage(self) -> Any:
        return self.raw.untyped_storage()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Saved as a tensor in the main memory."""
        return self.raw.__reduce_ex__(protocol)


def there(value: Any) -> bool:
    """Whether a value is a tensor on the device."""
    return isinstance(value, torch.Tensor) and value.device.type == NAME


def run(op: Any, args: Any, kwargs: Any) -> Any:
    """One operation with an operand on the device, or whose result is to be there."""
    name = str(op)
    flat, form = pytree.tree_flatten((args, kwargs))
    asked = [value.type for value in flat if isinstance(value, torch.device)]
    if "aten.to." in name:  # whole under inference mode, where nothing takes it apart
        if isinstance(flat[1], torch.Tensor):
            asked.append(flat[1].device.type)
        dtype = next((value for value in flat if isinstance(value, torch.dtype)), flat[0].dtype)
        if "cpu" in asked and there(flat[0]):
            ledger.wait("to the CPU")
            return flat[0].raw.to(dtype, copy=True)
        if NAME in asked and not there(flat[0]):
            ledger.copy(flat[0], args[-2:-1] == (True,) or bool(kwargs.get("non_blocking")))
            return OnDevice(flat[0].to(dtype, copy=True))
    on_device = [value for value in flat if there(value)]
    _refuse_mixing(name, flat, on_device)
    if on_device and any(word in name for word in WAITING):
        ledger.wait(name)
    if on_device and "cpu" in asked:
        ledger.wait("to the CPU")
    if name.startswith("aten.copy_.") and there(flat[0]) != there(flat[1]):
        if there(flat[0]):
            ledger.copy(flat[1], flat[2:] == [True])
        else:
            ledger.wait("to the CPU")
    if "_to_copy" in name and not on_device:
        ledger.copy(flat[0], bool(kwargs.get("non_blocking")))
    owners: dict[int, Any] = {}

    def bare(value: Any) -> Any:
        if there(value):
            owners[id(value.raw)] = value
            return value.raw
        return torch.device("cpu") if isinstance(value, torch.device) and value.type == NAME else value

    plain_args, plain_kwargs = pytree.tree_unflatten([bare(value) for value in flat], form)
    if name.startswith("aten.histc"):  # of integers, which only the CPU does not count
        plain_args = (plain_args[0].float(), *plain_args[1:])
    results = _computed(op, plain_args, plain_kwargs)
    back = bool(on_device or NAME in asked) and not ("cpu" in asked and NAME not in asked)

    def dressed(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return owners[id(value)] if id(value) in owners else OnDevice(value) if back else value

    return pytree.tree_map(dressed, results)


def _computed(op: Any, args: Any, kwargs: Any) -> Any:
    """What comes of it; products of 16-bit tensors are added up in 32 bits and given back in 16."""
    kinds = {value.dtype for value in pytree.tree_leaves(args) if isinstance(value, torch.Tensor)}
    if not str(op).startswith(PRODUCTS) or not kinds <= {torch.float16, torch.bfloat16}:
        return op(*args, **kwargs)
    narrow = kinds.pop()
    wide = pytree.tree_map_only(torch.Tensor, torch.Tensor.float, args)
    return pytree.tree_map_only(torch.Tensor, lambda made: made.to(narrow), op(*wide, **kwargs))


def _refuse_mixing(name: str, flat: list[Any], on_device: list[Any]) -> None:
    """Operands on two devices; an index on the CPU is copied first, as PyTorch does, and waited for."""
    on_cpu = [v for v in flat if isinstance(v, torch.Tensor) and not there(v) and v.dim() > 0]
    if not on_cpu or not on_device or any(word in name for word in MAY_MIX):
        return
    if there(flat[0]) and name.startswith(INDEXING):
        ledger.wait("index on the CPU")
        return
    seen = ", ".join(f"{v.device.type} {tuple(v.shape)}" for v in flat if isinstance(v, torch.Tensor))
    raise RuntimeError(f"Expected all tensors to be on the same device: {name} ({seen})")


def _empty_strided(size: Any, stride: Any, *, dtype: Any = None, **_: Any) -> torch.Tensor:
    return OnDevice(torch.empty_strided(size, stride, dtype=dtype, device="cpu"))


def _empty(size: Any, *, dtype: Any = None, **_: Any) -> torch.Tensor:
    return OnDevice(torch.empty(size, dtype=dtype, device="cpu"))


def _copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    source_raw, target_raw = (each.raw if there(each) else each for each in (source, target))
    if there(target) and not there(source):
        ledger.copy(source, non_blocking)
    if there(source) != there(target) and not (non_blocking and there(target)):
        ledger.wait("copy between devices")  # from main memory without non_blocking, too
    target_raw.copy_(source_raw)
    return target


# What autograd's own threads make below any mode.
_LIBRARY = torch.library.Library("aten", "IMPL")
_LIBRARY.impl("empty_strided", _empty_strided, "PrivateUse1")
_LIBRARY.impl("empty.memory_format", _empty, "PrivateUse1")
_LIBRARY.impl("_copy_from", _copy_from, "PrivateUse1")
# One kernel on a GPU; for backends in Python it would be taken apart, and hold four tensors more.
_LIBRARY.impl(
    "silu_backward", lambda *args: run(torch.ops.aten.silu_backward.default, args, {}), "PrivateUse1"
)
# Autocast is `_Function`'s: below it nothing is cast again.
_AUTOCAST = torch.library.Library("_", "IMPL", "AutocastPrivateUse1")
_AUTOCAST.fallback(torch.library.fallthrough_kernel)


class _Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        flat, _ = pytree.tree_flatten((args, kwargs or {}))
        if any(there(v) or (isinstance(v, torch.device) and v.type == NAME) for v in flat):
            return run(op, args, kwargs or {})
        return op(*args, **(kwargs or {}))


def _plain(value: Any) -> Any:
    if there(value):
        ledger.wait("item")
        return value.raw.tolist()
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def _index(value: Any) -> Any:
    if isinstance(value, (list, range)):
        ledger.wait("index by a Python list")
        return torch.tensor(list(value)).to(DEVICE)
    return value


class _Function(TorchFunctionMode):
    """PyTorch's own argument parser and autocast, which stand above any dispatch."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if func in (torch.tensor, torch.as_tensor) and not isinstance(args[0], torch.Tensor):
            device = kwargs.pop("device", None)
            made = func(*map(_plain, args), **kwargs)
            return made if device is None else made.to(device)
        if name == "new_tensor" and there(args[0]):
            return torch.tensor(_plain(args[1]), dtype=kwargs.get("dtype", args[0].dtype)).to(DEVICE)
        if name in ("__getitem__", "__setitem__") and there(args[0]):
            place = tuple(map(_index, args[1])) if isinstance(args[1], tuple) else _index(args[1])
            args = (args[0], place, *args[2:])
        if func == torch.Tensor.data.__set__ and there(args[0]):  # type: ignore[attr-defined]
            args[0].raw = args[1].raw
        if name in TO_HALF | TO_SINGLE and torch.is_autocast_enabled(NAME):
            dtype = torch.get_autocast_dtype(NAME) if name in TO_HALF else torch.float32
            args, kwargs = pytree.tree_map(lambda value: _cast(value, dtype), (args, kwargs))
        if func is scaled_dot_product_attention and there(args[0]):
            return _attend(*args, **kwargs)
        return func(*args, **kwargs)


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **more: Any,
) -> torch.Tensor:
    """As a fused kernel: the scores of all pairs are never there, neither forward nor backward."""
    attend = partial(scaled_dot_product_attention, dropout_p=dropout_p, is_causal=is_causal, **more)
    found: torch.Tensor = _Fused.apply(attend, query, key, value, attn_mask)  # type: ignore[no-untyped-call]
    return found


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, attend: Any, *given: Any) -> torch.Tensor:
        ctx.attend = attend
        ctx.save_for_backward(*given)
        _refuse_mixing("scaled_dot_product_attention", list(given), [v for v in given if there(v)])
        query, key, value, mask = (each if each is None else each.raw for each in given)
        return OnDevice(attend(query, key, value, mask))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        *given, mask = ctx.saved_tensors
        inputs = [each.raw.detach().requires_grad_() for each in given]
        with torch.enable_grad():
            made = ctx.attend(*inputs, mask if mask is None else mask.raw)
        found = torch.autograd.grad(made, inputs, gradients[0].raw)
        return None, *map(OnDevice, found), None


def _cast(value: Any, dtype: torch.dtype) -> Any:
    return (
        value.to(dtype)
        if there(value) and value.is_floating_point() and value.dtype != torch.float64
        else value
    )


def _pinned(self: torch.Tensor, *_: Any) -> torch.Tensor:
    made = self.clone()
    ledger.pin(made)
    return made


_as_subclass = torch.Tensor.as_subclass
_run_backward = torch.autograd._engine_run_backward  # type: ignore[attr-defined]


def _subclassed(self: torch.Tensor, cls: type) -> torch.Tensor:
    """A mask with a layout, for one."""
    if not there(self):
        return _as_subclass(self, cls)
    made = OnDevice(self.raw)
    made.__class__ = type(
        cls.__name__, (cls, OnDevice), {"__torch_function__": torch._C._disabled_torch_function_impl}
    )
    return made


def _no_grad(mode: Any = True) -> Any:
    """In the place of inference mode, in which views of wrapped tensors cannot be made."""
    if callable(mode):
        return torch.no_grad()(mode)
    return torch.no_grad() if mode else contextlib.nullcontext()


def _backward(*args: Any, **kwargs: Any) -> Any:
    """With the modes in autograd's own threads, too, where checkpoints are computed again."""
    with _Function():
        found = _run_backward(*args, **kwargs)
    full, ledger.full = ledger.full, None
    if full:
        raise full
    return found


@contextlib.contextmanager
def present() -> Any:
    """While this is open, tensors can be made on the device."""
    with (
        patch.object(torch.Tensor, "as_subclass", _subclassed),
        patch.object(torch.Tensor, "pin_memory", _pinned),
        patch.object(torch, "inference_mode", _no_grad),
        patch.object(torch.autograd, "_engine_run_backward", _backward),
        _Dispatch(),
        _Function(),
    ):
        yield ledger


@contextlib.contextmanager
def phase(name: str) -> Any:
    """Count waits and bytes under this name while open."""
    before, ledger.phase = ledger.phase, name
    try:
        yield
    finally:
        ledger.phase = before
