"""Mixed precision: what runs under autocast on a CPU must not fail on a GPU, where other rules hold."""

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from swift_grpo_ext.group.forward import packed_scores, row_scores
from swift_grpo_ext.group.layout import PackForm
from swift_grpo_ext.group.micro_batch import pack_inputs
from swift_grpo_ext.group.recompute import reduced_compute
from swift_grpo_ext.group.shared_prefix import build_pack, read_rows
from tests.group.batches import collate
from tests.group.test_decoders import DECODERS, ROWS, VOCAB, build
from tests.group.test_decoders import packed as packed_logps

MODELS = ("gemma3", "llama", "deepseek_v3", "qwen3_moe")


@pytest.fixture
def _rules_of_a_gpu():
    """Autocast without the CPU's rule for index_copy, which CUDA does not have."""
    library = torch.library.Library("aten", "IMPL", "AutocastCPU")
    library.impl("index_copy", torch.library.fallthrough_kernel, "AutocastCPU")
    yield
    library._destroy()


def run(model):
    """A packed pass with everything that a trainer opens around it, forward and backward, and one of rows."""
    inputs = collate(ROWS)
    mask = inputs.pop("completion_mask")
    rows = read_rows(inputs["input_ids"], inputs["attention_mask"], mask)
    pack = build_pack(rows, inputs["input_ids"], mask, PackForm("sdpa"))
    with torch.autocast("cpu", torch.bfloat16):
        with reduced_compute(model.get_decoder(), pack, True):
            ours = packed_scores(
                model,
                model.lm_head,
                pack_inputs(inputs, pack, {}),
                pack,
                vocab_size=VOCAB,
                with_entropy=True,
                chunk_bytes=1024,
            )
        rows = row_scores(model, model.lm_head, inputs, mask, vocab_size=VOCAB)
    (ours.sum() + rows.sum()).backward()
    return ours


@pytest.mark.usefixtures("_rules_of_a_gpu")
@pytest.mark.parametrize("name", MODELS)
def test_fp32_weights_train_in_bf16_without_the_rules_of_the_cpu(name):
    model = build(name)
    ours = run(model)[..., 0]
    with torch.autocast("cpu", torch.bfloat16):
        expected = packed_logps(model, ROWS, "right", "sdpa")[2]
    assert (ours - expected).abs().max() < 0.2


class Operators(TorchDispatchMode):
    """Names of the operators that reach a kernel."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(func._schema.name)
        return func(*args, **(kwargs or {}))


class Functions(TorchFunctionMode):
    """Names of the operators that Python calls, before autocast and before they are taken apart."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.add(f"aten::{getattr(func, '__name__', '')}")
        return func(*args, **(kwargs or {}))


def has_rule(operator, device):
    overloads = torch._C._jit_get_schemas_for_operator(operator)
    names = {f"{one.name}.{one.overload_name}" if one.overload_name else one.name for one in overloads}
    known = filter(torch._C._dispatch_has_kernel, names)  # the rest is of the scripting language alone
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(name, f"Autocast{device}") for name in known)


@pytest.mark.parametrize("name", sorted(DECODERS))
def test_no_operator_has_a_rule_on_the_cpu_only(name):
    """A rule that a GPU has alone casts to 32 bits; one that a CPU has alone hides a crash from every test."""
    model = build(name)
    inputs = collate(ROWS)
    inputs.pop("completion_mask")
    with Operators() as kernels, Functions() as functions, torch.autocast("cpu", torch.bfloat16):
        model(**inputs).logits.sum().backward()
    of_the_model = kernels.names | functions.names
    with Operators() as kernels, Functions() as functions:
        run(model)
    called = kernels.names | functions.names
    assert {"aten::linear", "aten::index_copy", "aten::scaled_dot_product_attention"} <= called
    assert has_rule("aten::linear", "CUDA")
    assert has_rule("aten::linear", "CPU")
    only_cpu = {one for one in called - of_the_model if has_rule(one, "CPU") and not has_rule(one, "CUDA")}
    # index_copy: of one dtype in all our calls, which the test above holds; cat and stack promote themselves.
    assert only_cpu <= {"aten::index_copy", "aten::cat", "aten::stack"}
