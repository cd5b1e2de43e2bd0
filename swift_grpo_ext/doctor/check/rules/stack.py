"""Releases and parts of the stack that do not fit together, or are missing."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from packaging.specifiers import SpecifierSet

from swift_grpo_ext.doctor.check.rules.table import table
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.findings import Problem


def _in(run: Run, name: str, releases: str) -> bool:
    found = run.versions.get(name)
    return found is not None and SpecifierSet(releases).contains(found, prereleases=True)


@table.on("trl-too-old")
def _trl(run: Run) -> Iterator[Problem]:
    if _in(run, "trl", "<0.26"):
        yield Problem(f"trl {run.versions['trl']} is older than 0.26", "trl", 'pip install "trl>=0.26,<1.0"')


@table.on("msgspec-missing")
def _msgspec(run: Run) -> Iterator[Problem]:
    if "msgspec" in run.versions and run.versions["msgspec"] is None:
        yield Problem("msgspec is not installed", "msgspec", "pip install msgspec")


@table.on("torchvision-of-another-torch")
def _torchvision(run: Run) -> Iterator[Problem]:
    torch, vision = run.versions.get("torch"), run.versions.get("torchvision")
    if not torch or not vision:
        return
    wanted = int(vision.split(".")[1]) - 15
    major, minor = torch.split(".")[:2]
    if major == "2" and vision.startswith("0.") and int(minor) != wanted:
        yield Problem(
            f"torchvision {vision} is built for torch 2.{wanted}, torch is {torch}",
            "torchvision",
            f'pip install "torchvision==0.{int(minor) + 15}.*"',
        )


@table.on("zero3-loses-its-trace")
def _trace(run: Run) -> Iterator[Problem]:
    args = run.arguments
    if run.stage != 3 or args.use_vllm or not args.ds3_gather_for_generation:
        return
    if _in(run, "deepspeed", "<0.19.2") and not run.heals("A3-zero3-trace"):
        yield Problem(
            "ZeRO-3 with --use_vllm false stops at the second rollout on DeepSpeed "
            f"{run.versions['deepspeed']}",
            "--deepspeed",
            'pip install "deepspeed>=0.19.2", or our plugin, or --ds3_gather_for_generation false',
        )
    if _in(run, "transformers", ">=5.0.0,<5.5.4"):
        yield Problem(
            f"transformers {run.versions['transformers']} loses ZeRO-3's trace",
            "transformers",
            'pip install "transformers>=5.5.4"',
        )


@table.on("seed-worker")
def _seed_worker(run: Run) -> Iterator[Problem]:
    old_caller = _in(run, "trl", "<0.19") or _in(run, "ms-swift", "<=3.4.1")
    if old_caller and _in(run, "transformers", ">=4.52") and not run.heals("A7-worker-seed"):
        yield Problem(
            "transformers is newer than its callers",
            "transformers",
            'pip install -U "ms-swift>=4.5" "trl>=0.26"',
        )


@table.on("h20-cublas")
def _h20(run: Run) -> Iterator[Problem]:
    if "H20" in run.device.split() and _in(run, "nvidia-cublas-cu12", "<12.3.4.1"):
        yield Problem(
            f"cuBLAS {run.versions['nvidia-cublas-cu12']} crashes on H20",
            "nvidia-cublas-cu12",
            'pip install "nvidia-cublas-cu12>=12.3.4.1"',
        )


@table.on("reentrant-ddp")
def _reentrant(run: Run) -> Iterator[Problem]:
    args = run.arguments
    asked = "use_reentrant" in str(args.gradient_checkpointing_kwargs) and "true" in (
        str(args.gradient_checkpointing_kwargs).lower()
    )
    if asked and run.ranks > 1 and not args.deepspeed and not run.heals("A5-reentrant-ddp"):
        yield Problem(
            "reentrant checkpointing under DDP marks parameters twice",
            "--gradient_checkpointing_kwargs",
            """'{"use_reentrant": false}'""",
        )


@table.on("vllm-adapter")
def _vllm_adapter(run: Run) -> Iterator[Problem]:
    args = run.arguments
    if not (args.use_vllm and args.vllm_enable_lora) or run.full:
        return
    if args.lora_rank > (args.vllm_max_lora_rank or 16):
        yield Problem(
            f"rank {args.lora_rank} exceeds vLLM's {args.vllm_max_lora_rank}",
            "--vllm_max_lora_rank",
            f"--vllm_max_lora_rank {args.lora_rank}",
        )
    if args.freeze_vit is False or args.freeze_aligner is False:
        yield Problem(
            "vLLM loads no adapter of the vision tower or aligner, so rollouts would not be the policy's",
            "--vllm_enable_lora true",
            "--vllm_enable_lora false, or --freeze_vit true --freeze_aligner true",
        )


@table.on("attention-not-installed")
def _attention(run: Run) -> Iterator[Problem]:
    asked = str(run.arguments.attn_impl or "") in ("flash_attn", "flash_attention_2")
    missing = "flash-attn" in run.versions and run.versions["flash-attn"] is None
    if run.device and asked and missing and not find_spec("kernels"):
        yield Problem(
            "flash-attn is not installed", "--attn_impl", "pip install flash-attn, or --attn_impl sdpa"
        )


@table.on("engine-not-installed")
def _engine(run: Run) -> Iterator[Problem]:
    missing = "vllm" in run.versions and run.versions["vllm"] is None
    if run.device and run.arguments.use_vllm and missing:
        yield Problem("vllm is not installed", "--use_vllm true", "pip install vllm, or --use_vllm false")
