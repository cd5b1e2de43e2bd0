"""Releases and parts of the stack that do not fit together, or are missing."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from packaging.specifiers import SpecifierSet

from swift_grpo_ext.doctor.check.rules.table import table
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.findings import Problem, Severity


def _in(run: Run, name: str, releases: str) -> bool:
    found = run.versions.get(name)
    return found is not None and SpecifierSet(releases).contains(found, prereleases=True)


@table.rule(
    "trl-too-old",
    Severity.ERROR,
    symptoms=("ImportError: trl>=0.26 is required", "Your current version of `trl` is outdated."),
    cause="ms-swift's GRPO configuration is made of trl's.",
)
def _trl(run: Run) -> Iterator[Problem]:
    if _in(run, "trl", "<0.26"):
        yield Problem(f"trl {run.versions['trl']} is older than 0.26", "trl", 'pip install "trl>=0.26,<1.0"')


@table.rule(
    "msgspec-missing",
    Severity.ERROR,
    symptoms="ModuleNotFoundError: No module named 'msgspec'",
    cause="ms-swift's GRPO code imports it and does not declare it.",
    reports="B12",
)
def _msgspec(run: Run) -> Iterator[Problem]:
    if "msgspec" in run.versions and run.versions["msgspec"] is None:
        yield Problem("msgspec is not installed", "msgspec", "pip install msgspec")


@table.rule(
    "torchvision-of-another-torch",
    Severity.ERROR,
    symptoms=(
        "RuntimeError: operator torchvision::nms does not exist",
        "Could not import module 'BloomPreTrainedModel'",
    ),
    cause="A torchvision is built for one torch; the error then names neither.",
)
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


@table.rule(
    "zero3-loses-its-trace",
    Severity.ERROR,
    symptoms="IndexError: pop from an empty deque",
    cause="DeepSpeed before 0.19.2 keys its parameter trace by ids that the rollout renumbers; transformers "
    "5.0.0 to 5.5.3 has a cause of its own.",
    reports=("A3", "https://github.com/deepspeedai/DeepSpeed/pull/8043"),
)
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


@table.rule(
    "seed-worker",
    Severity.ERROR,
    symptoms="seed_worker() missing 2 required positional arguments: 'num_workers' and 'rank'",
    cause="transformers 4.52 changed the function; trl up to 0.18 and ms-swift up to 3.4.1 pass it bare. "
    "Upgrading transformers causes it.",
    reports="A7",
)
def _seed_worker(run: Run) -> Iterator[Problem]:
    old_caller = _in(run, "trl", "<0.19") or _in(run, "ms-swift", "<=3.4.1")
    if old_caller and _in(run, "transformers", ">=4.52") and not run.heals("A7-worker-seed"):
        yield Problem(
            "transformers is newer than its callers",
            "transformers",
            'pip install -U "ms-swift>=4.5" "trl>=0.26"',
        )


@table.rule(
    "h20-cublas",
    Severity.ERROR,
    symptoms="SIGFPE: Floating point exception (core dumped), integer divide by zero, on an H20",
    cause="A heuristic of cuBLASLt before 12.3.4.1 divides by zero on this GPU.",
    reports="A6",
)
def _h20(run: Run) -> Iterator[Problem]:
    if "H20" in run.device.split() and _in(run, "nvidia-cublas-cu12", "<12.3.4.1"):
        yield Problem(
            f"cuBLAS {run.versions['nvidia-cublas-cu12']} crashes on H20",
            "nvidia-cublas-cu12",
            'pip install "nvidia-cublas-cu12>=12.3.4.1"',
        )


@table.rule(
    "reentrant-ddp",
    Severity.ERROR,
    symptoms="RuntimeError: Expected to mark a variable ready only once.",
    cause="Reentrant checkpointing under DDP, in any dtype: fp16 instead of bf16 is no cure.",
    reports="A5",
)
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


@table.rule(
    "padding-free-attention",
    Severity.ERROR,
    symptoms=(
        'The "padding_free" feature requires a flash attention implementation.',
        'The "packing" feature requires a flash attention implementation.',
    ),
    cause="Only flash attention takes rows of different length without padding.",
)
def _padding_free(run: Run) -> Iterator[Problem]:
    args = run.arguments
    taken = ("flash_attn", "flash_attention_2", "flash_attention_3", "flash_attention_4")
    if (args.padding_free or args.packing) and args.attn_impl not in taken:
        yield Problem("rows without padding need flash attention", "--padding_free", "--attn_impl flash_attn")


@table.rule(
    "vllm-adapter",
    Severity.ERROR,
    symptoms=(
        "LoRA rank 64 is greater than max_lora_rank 16.",
        "rollouts ignore what the vision tower learned",
    ),
    cause="vLLM loads an adapter up to vllm_max_lora_rank, and of the language model only.",
)
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


@table.rule(
    "attention-not-installed",
    Severity.ERROR,
    symptoms="ImportError: FlashAttention2 has been toggled on, but it cannot be used",
    cause="flash-attn is compiled for one torch and is no dependency of ms-swift.",
)
def _attention(run: Run) -> Iterator[Problem]:
    asked = str(run.arguments.attn_impl or "") in ("flash_attn", "flash_attention_2")
    missing = "flash-attn" in run.versions and run.versions["flash-attn"] is None
    if run.device and asked and missing and not find_spec("kernels"):
        yield Problem(
            "flash-attn is not installed", "--attn_impl", "pip install flash-attn, or --attn_impl sdpa"
        )


@table.rule(
    "engine-not-installed",
    Severity.ERROR,
    symptoms="ImportError: vLLM is not available and `use_vllm` is set to True.",
    cause="vLLM is no dependency of ms-swift.",
)
def _engine(run: Run) -> Iterator[Problem]:
    missing = "vllm" in run.versions and run.versions["vllm"] is None
    if run.device and run.arguments.use_vllm and missing:
        yield Problem("vllm is not installed", "--use_vllm true", "pip install vllm, or --use_vllm false")
