"""Installed releases that do not fit one another, or lack what the run needs."""

import re
from collections.abc import Iterator

from swift_grpo_ext.doctor.check.rules.table import anywhere, is_missing, is_release, option, rule
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.findings import ERROR, Problem


@rule(
    "trl-too-old",
    ERROR,
    symptoms=(
        "ImportError: trl>=0.26 is required",
        "Your current version of `trl` is outdated.",
    ),
    cause="ms-swift's GRPO configuration is made of trl's.",
)
def _trl_too_old(run: Run) -> Iterator[Problem]:
    if is_release(run, "trl", "<0.26"):
        yield Problem(f"trl {run.versions['trl']} is older than 0.26", "trl", 'pip install "trl>=0.26,<1.0"')


@rule(
    "msgspec-missing",
    ERROR,
    symptoms="ModuleNotFoundError: No module named 'msgspec'",
    cause="ms-swift's GRPO code imports it and does not declare it.",
    reports="B12",
    scope=anywhere,
)
def _msgspec_missing(run: Run) -> Iterator[Problem]:
    if is_missing(run, "msgspec"):
        yield Problem("msgspec is not installed", "msgspec", "pip install msgspec")


@rule(
    "torchvision-of-another-torch",
    ERROR,
    symptoms=(
        "RuntimeError: operator torchvision::nms does not exist",
        "Could not import module 'BloomPreTrainedModel'",
    ),
    cause="A torchvision is built for one torch; the error then names neither.",
    scope=anywhere,
)
def _torchvision(run: Run) -> Iterator[Problem]:
    torch = run.versions.get("torch")
    vision = run.versions.get("torchvision")
    if not torch or not vision:
        return
    wanted = int(vision.split(".")[1]) - 15
    major, minor = torch.split(".")[:2]
    if major == "2" and vision.startswith("0.") and int(minor) != wanted:
        what = f"torchvision {vision} is built for torch 2.{wanted}, torch is {torch}"
        yield Problem(what, "torchvision", f'pip install "torchvision==0.{int(minor) + 15}.*"')


@rule(
    "zero3-loses-its-trace",
    ERROR,
    symptoms="IndexError: pop from an empty deque",
    cause=(
        "DeepSpeed before 0.19.2 keys its parameter trace by ids that the rollout renumbers; "
        "transformers 5.0.0 to 5.5.3 has a cause of its own."
    ),
    reports=("A3", "https://github.com/deepspeedai/DeepSpeed/pull/8043"),
)
def _zero3_loses_its_trace(run: Run) -> Iterator[Problem]:
    args = run.arguments
    if run.stage != 3 or args.use_vllm or not args.ds3_gather_for_generation:
        return
    if is_release(run, "deepspeed", "<0.19.2") and not run.heals("A3-zero3-trace"):
        version = run.versions["deepspeed"]
        what = f"ZeRO-3 with --use_vllm false stops at the second rollout on DeepSpeed {version}"
        fix = 'pip install "deepspeed>=0.19.2", or our plugin, or --ds3_gather_for_generation false'
        yield Problem(what, "--deepspeed", fix)
    if is_release(run, "transformers", ">=5.0.0,<5.5.4"):
        what = f"transformers {run.versions['transformers']} loses ZeRO-3's trace"
        yield Problem(what, "transformers", 'pip install "transformers>=5.5.4"')


@rule(
    "seed-worker",
    ERROR,
    symptoms="seed_worker() missing 2 required positional arguments: 'num_workers' and 'rank'",
    cause=(
        "transformers 4.52 changed the function; trl up to 0.18 and ms-swift up to 3.4.1 pass it "
        "bare. Upgrading transformers causes it."
    ),
    reports="A7",
)
def _seed_worker(run: Run) -> Iterator[Problem]:
    old = is_release(run, "trl", "<0.19") or is_release(run, "ms-swift", "<=3.4.1")
    if old and is_release(run, "transformers", ">=4.52") and not run.heals("A7-worker-seed"):
        what = "transformers is newer than its callers"
        yield Problem(what, "transformers", 'pip install -U "ms-swift>=4.5" "trl>=0.26"')


@rule(
    "h20-cublas",
    ERROR,
    symptoms="SIGFPE: Floating point exception (core dumped), integer divide by zero, on an H20",
    cause="A heuristic of cuBLASLt before 12.3.4.1 divides by zero on this GPU.",
    reports="A6",
)
def _h20_cublas(run: Run) -> Iterator[Problem]:
    if "H20" in run.device.split() and is_release(run, "nvidia-cublas-cu12", "<12.3.4.1"):
        what = f"cuBLAS {run.versions['nvidia-cublas-cu12']} crashes on H20"
        yield Problem(what, "nvidia-cublas-cu12", 'pip install "nvidia-cublas-cu12>=12.3.4.1"')


@rule(
    "reentrant-ddp",
    ERROR,
    symptoms="RuntimeError: Expected to mark a variable ready only once.",
    cause="Reentrant checkpointing under DDP, in any dtype: fp16 instead of bf16 does not help.",
    reports="A5",
)
def _reentrant_ddp(run: Run) -> Iterator[Problem]:
    args = run.arguments
    reentrant = re.search("use_reentrant.*true", str(args.gradient_checkpointing_kwargs or ""), re.I | re.S)
    if reentrant and run.ranks > 1 and not args.deepspeed and not run.heals("A5-reentrant-ddp"):
        what = "reentrant checkpointing under DDP marks parameters twice"
        yield option("gradient_checkpointing_kwargs", what, """'{"use_reentrant": false}'""")
