"""The stages of ZeRO: what each needs, and which defects of DeepSpeed they meet."""

from collections.abc import Iterator

from swift_grpo_ext.defects import DEFECTS
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.rules.table import OUR_PLUGIN, deepspeed, option, refused, rule
from swift_grpo_ext.doctor.check.unknown import decided
from swift_grpo_ext.findings import ERROR, WARNING, Problem


@rule(
    "zero3-device-map",
    ERROR,
    symptoms="DeepSpeed Zero-3 is not compatible with passing a `device_map`.",
    cause="Under ZeRO-3 each rank holds a shard of every weight, so nothing is left to place.",
)
def _zero3_device_map(run: Run) -> Iterator[Problem]:
    places = decided(run.arguments.device_map)
    if run.stage == 3 and places is not None:
        what = f"ZeRO-3 shards the model, --device_map {places} places it"
        yield Problem(what, "--device_map", "--deepspeed zero3, without --device_map")


@rule(
    "zero3-quantized",
    ERROR,
    symptoms=(
        "RuntimeError: ... only Tensors of floating point dtype can require gradients, with QLoRA and ZeRO-3",
        "ValueError: .to is not supported for 4-bit or 8-bit bitsandbytes models",
    ),
    cause=(
        "bitsandbytes packs weights into bytes with a state beside them; ZeRO-3 partitions the "
        "bytes, loses the state, and the weight sync to vLLM gathers nothing usable."
    ),
)
def _zero3_quantized(run: Run) -> Iterator[Problem]:
    args = run.arguments
    packs = args.quant_method == "bnb" or (not args.quant_method and args.quant_bits)
    if run.stage == 3 and packs:
        what = "ZeRO-3 cannot shard weights that bitsandbytes has packed"
        fix = "--deepspeed ext_zero2 with QLoRA, or ZeRO-3 without --quant_method"
        yield Problem(what, "--quant_bits", fix)


@rule(
    "ds-overlap-comm",
    WARNING,
    symptoms=(
        "loss or grad_norm becomes NaN with ZeRO-2",
        "grad_norm differs between ZeRO-1/2 and ZeRO-3",
    ),
    cause=(
        "With overlap_comm the reduction stream of ZeRO-1/2 read gradient buffers that were "
        "still being written, in several releases; where that was fixed by waiting, nothing "
        "overlaps."
    ),
    reports=(
        "https://github.com/deepspeedai/DeepSpeed/issues/5545",
        "https://github.com/deepspeedai/DeepSpeed/issues/7804",
        "https://github.com/deepspeedai/DeepSpeed/issues/8061",
    ),
    scope=deepspeed,
)
def _ds_overlap_comm(run: Run) -> Iterator[Problem]:
    if run.stage in (1, 2) and run.zero.get("overlap_comm") is True:
        what = f"overlap_comm with ZeRO-{run.stage} has corrupted gradients"
        yield Problem(what, "zero_optimization.overlap_comm", '"overlap_comm": false')


@rule(
    "ds-zero0-bf16",
    ERROR,
    symptoms=(
        "grad_norm is tiny or grows without bound with ZeRO-0",
        "nothing is learned with zero0",
    ),
    cause=(
        "DeepSpeed before 0.18.6 divided bf16 gradients of ZeRO-0 by the fp16 loss scale, 65536, "
        "and did not clear them."
    ),
    defect=DEFECTS["B11"],
    scope=deepspeed,
)
def _ds_zero0_bf16(run: Run) -> Iterator[Problem]:
    return refused(run, "B11", bf16=run.arguments.torch_dtype in (None, "bfloat16"))


@rule(
    "ds-saves-no-weights",
    WARNING,
    symptoms="the checkpoint of a ZeRO-3 run has no model weights, or only a few MB",
    cause="Without stage3_gather_16bit_weights_on_model_save each rank saves its shards only.",
    scope=deepspeed,
)
def _ds_saves_no_weights(run: Run) -> Iterator[Problem]:
    gathers = any(run.zero.get(name) is True for name in _GATHER_ON_SAVE)
    if run.stage == 3 and run.full and not gathers:
        name = _GATHER_ON_SAVE[0]
        what = "full training with ZeRO-3 will save shards, not weights"
        yield Problem(what, f"zero_optimization.{name}", f'"{name}": true')


# The key of DeepSpeed today, and its older names.
_GATHER_ON_SAVE = (
    "stage3_gather_16bit_weights_on_model_save",
    "gather_16bit_weights_on_model_save",
    "stage3_gather_fp16_weights_on_model_save",
)


@rule(
    "ds-quantized",
    WARNING,
    symptoms="log-probs of trainer and vLLM differ from the first step on with ZeRO++",
    cause="Quantised weights or gradients make the trained policy another one than the policy that sampled.",
    scope=deepspeed,
)
def _ds_quantized(run: Run) -> Iterator[Problem]:
    for kind in ("weights", "gradients", "nontrainable_weights"):
        name = f"zero_quantized_{kind}"
        if run.zero.get(name) is True:
            what = "quantised communication shifts log-probs and gradients"
            yield Problem(what, f"zero_optimization.{name}", f'"{name}": false')


@rule(
    "ds-hpz-second-model",
    ERROR,
    symptoms="AssertionError: ZeRO parameter intra parallel group is already initialized",
    cause=(
        "DeepSpeed makes the group of the secondary partition once per model that is loaded "
        "under ZeRO-3, and asserts that it is the first."
    ),
    defect=DEFECTS["hpz-second-model"],
    scope=deepspeed,
)
def _ds_hpz_second_model(run: Run) -> Iterator[Problem]:
    args = run.arguments
    second = (run.full and args.beta) or args.reward_model or args.teacher_model
    if _has_hpz(run) and second and not run.is_patched("hpz-second-model"):
        what = "hpZ cannot load a second model (reference, reward or teacher)"
        yield Problem(what, _HPZ_PLACE, DEFECTS["hpz-second-model"].fix)


_HPZ = "zero_hpz_partition_size"
_HPZ_PLACE = f"zero_optimization.{_HPZ}"


def _has_hpz(run: Run) -> bool:
    return run.zero.get(_HPZ) not in (None, 0, 1)


@rule(
    "ds-hpz-offload",
    ERROR,
    symptoms="loss is 0.0 and grad_norm is NaN with zero_hpz_partition_size",
    cause=(
        "hpZ keeps a second copy of the weights on the device, and with weights offloaded to the "
        "CPU that copy is read before it is written."
    ),
    reports="https://github.com/modelscope/ms-swift/issues/3697",
    scope=deepspeed,
)
def _ds_hpz_offload(run: Run) -> Iterator[Problem]:
    if _has_hpz(run) and run.offloads("offload_param"):
        what = "hpZ together with offload_param: the loss stays 0"
        fix = "--deepspeed ext_zero3_hpz, or --deepspeed ext_zero3_offload: keep one of the two"
        yield Problem(what, _HPZ_PLACE, fix)


@rule(
    "ds-hpz-one-node",
    WARNING,
    symptoms="out of memory since zero_hpz_partition_size was set",
    cause="hpZ saves traffic between nodes at the price of a second 16-bit copy of the weights per node.",
    scope=deepspeed,
)
def _ds_hpz_one_node(run: Run) -> Iterator[Problem]:
    if _has_hpz(run) and run.nodes < 2:
        what = "hpZ on one node doubles the memory of the weights and saves nothing"
        yield Problem(what, _HPZ_PLACE, "--deepspeed ext_zero3")


@rule(
    "ds-hpz-auto",
    WARNING,
    symptoms="zero_hpz_partition_size has no effect",
    cause='DeepSpeed drops every "auto" that transformers does not fill, and this key is unknown to it.',
    scope=deepspeed,
)
def _ds_hpz_auto(run: Run) -> Iterator[Problem]:
    if run.zero.get(_HPZ) == "auto" and "presets" not in run.parts:
        what = f'nobody fills {_HPZ} "auto", so it is dropped'
        yield Problem(what, _HPZ_PLACE, f'"{_HPZ}": {run.ranks_per_node}, or {OUR_PLUGIN}')


@rule(
    "ds-offload-twice",
    WARNING,
    symptoms="--offload_model or --offload_optimizer frees no memory",
    cause="What DeepSpeed keeps in CPU memory is not on the GPU: nothing is left to move for the rollout.",
    scope=deepspeed,
)
def _ds_offload_twice(run: Run) -> Iterator[Problem]:
    for name, block in (("offload_optimizer", "offload_optimizer"), ("offload_model", "offload_param")):
        if run.arguments.get(name) and run.offloads(block):
            what = f"--{name} moves nothing: {block} already keeps it in CPU memory"
            yield option(name, what, "false")


@rule(
    "ds-offload-param-stage",
    WARNING,
    symptoms="offload_param frees no memory",
    cause="Only ZeRO-3 shards weights, so only ZeRO-3 can offload them.",
    scope=deepspeed,
)
def _ds_offload_param_stage(run: Run) -> Iterator[Problem]:
    if run.offloads("offload_param") and run.stage < 3:
        what = f"offload_param does nothing in ZeRO-{run.stage}"
        yield Problem(what, "zero_optimization.offload_param", "--deepspeed ext_zero3_offload")


@rule(
    "ds-offload-param-alone",
    WARNING,
    symptoms="out of memory at the first optimizer step, although offload_param is on",
    cause=(
        "In full training the optimizer states are six times the 16-bit weights; offloading only "
        "the weights pays for PCIe in every pass and keeps the larger part on the GPU."
    ),
    scope=deepspeed,
)
def _ds_offload_param_alone(run: Run) -> Iterator[Problem]:
    alone = run.offloads("offload_param") and not run.offloads("offload_optimizer")
    if alone and run.stage == 3 and run.full:
        what = "weights are offloaded, the optimizer states are not"
        fix = "--deepspeed ext_zero3_offload_optimizer: offload the optimizer first"
        yield Problem(what, "zero_optimization.offload_param", fix)


@rule(
    "ds-zero2-offload-drops-gradients",
    ERROR,
    symptoms=(
        "parameters hardly move with zero2_offload and gradient_accumulation_steps > 1",
        "grad_norm is smaller with zero2_offload than with zero2",
    ),
    cause=(
        "ZeRO-1/2 with the optimizer on the CPU adds only the first and the last micro-batch "
        "(DeepSpeed 0.15.2 to 0.18.9): at 32 steps of accumulation 30 of 32 completions are "
        "thrown away."
    ),
    reports="A8",
    defect=DEFECTS["B1"],
    scope=deepspeed,
)
def _ds_zero2_offload_drops_gradients(run: Run) -> Iterator[Problem]:
    return refused(run, "B1")
