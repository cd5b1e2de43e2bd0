"""DeepSpeed: its configuration, and settings that lose gradients, learning rates or memory."""

from collections.abc import Iterator

from swift_grpo_ext.deepspeed import presets
from swift_grpo_ext.doctor.check.facts import model
from swift_grpo_ext.doctor.check.facts.files import HOST_PRESETS
from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.rules.table import OUR_PLUGIN, fault, refused, rule
from swift_grpo_ext.findings import ERROR, WARNING, Problem


@rule(
    "deepspeed-unreadable",
    ERROR,
    symptoms=("json.decoder.JSONDecodeError", "unknown DeepSpeed preset"),
    cause="--deepspeed takes a preset, a file or JSON.",
)
def _unreadable(run: Run) -> Iterator[Problem]:
    name = str(run.arguments.deepspeed or "")
    config = model.deepspeed(run)
    if isinstance(config, str):
        meant = filter(name.startswith, (*HOST_PRESETS, *presets.available()))
        close = max(meant, key=len, default="ext_zero2")
        yield Problem(config, f"--deepspeed {name:.80}", f"--deepspeed {close}")
    elif name.startswith(presets.PREFIX) and "presets" not in run.parts:
        yield Problem("our presets need our plugin", "--deepspeed", OUR_PLUGIN)


fault(
    "ds-optimizer-block",
    WARNING,
    lambda run: bool(model.block(run, "optimizer")),
    "the optimizer block replaces the optimizer of the command line, with --vit_lr and --aligner_lr",
    "optimizer",
    "delete the block; ms-swift builds AdamW from the command line",
    symptoms=(
        "--optim, --weight_decay or --adam_beta2 has no effect with DeepSpeed",
        "--vit_lr or --aligner_lr has no effect with DeepSpeed",
    ),
    cause="DeepSpeed builds its own optimizer from the block, over one list of parameters: ms-swift's is "
    "never made, and groups with learning rates of their own are lost without a word.",
    reports="https://github.com/modelscope/ms-swift/issues/2723",
)
fault(
    "ds-overlap-comm",
    WARNING,
    lambda run: (
        model.zero(run).get("overlap_comm") is True and model.stage(run) in (1, 2) and model.stage(run)
    ),
    "overlap_comm with ZeRO-{} has corrupted gradients",
    "zero_optimization.overlap_comm",
    '"overlap_comm": false',
    symptoms=(
        "loss or grad_norm becomes NaN with ZeRO-2",
        "grad_norm differs between ZeRO-1/2 and ZeRO-3",
    ),
    cause="With overlap_comm the reduction stream of ZeRO-1/2 read gradient buffers that were "
    "still being written, in several releases; where that was fixed by waiting, nothing "
    "overlaps.",
    reports=(
        "https://github.com/deepspeedai/DeepSpeed/issues/5545",
        "https://github.com/deepspeedai/DeepSpeed/issues/7804",
        "https://github.com/deepspeedai/DeepSpeed/issues/8061",
    ),
)
fault(
    "ds-hpz-offload",
    ERROR,
    lambda run: model.zero(run).get(model.HPZ) not in (None, 0, 1) and model.offloads(run, "offload_param"),
    "hpZ together with offload_param: the loss stays 0",
    f"zero_optimization.{model.HPZ}",
    "--deepspeed ext_zero3_hpz, or --deepspeed ext_zero3_offload: keep one of the two",
    symptoms="loss is 0.0 and grad_norm is NaN with zero_hpz_partition_size",
    cause="hpZ keeps a second copy of the weights on the device, and with weights offloaded to the "
    "CPU that copy is read before it is written.",
    reports="https://github.com/modelscope/ms-swift/issues/3697",
)
refused(
    "ds-zero2-offload-drops-gradients",
    "B1",
    (
        "parameters hardly move with zero2_offload and gradient_accumulation_steps > 1",
        "grad_norm is smaller with zero2_offload than with zero2",
    ),
    "ZeRO-1/2 with the optimizer on the CPU adds only the first and the last micro-batch (DeepSpeed 0.15.2 "
    "to 0.18.9): at 32 steps of accumulation 30 of 32 completions are thrown away.",
)
