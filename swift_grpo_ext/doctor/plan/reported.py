"""Settings that people reported as hanging or out of memory, and why they fail by this arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from swift_grpo_ext.doctor.plan.catalogue import bundled_name, require_config
from swift_grpo_ext.doctor.plan.judge import objections
from swift_grpo_ext.doctor.plan.setting import Machine, Setting, Work
from swift_grpo_ext.doctor.plan.shape import shape_of


@dataclass(frozen=True)
class Report:
    """One reported run.

    Attributes:
        model: Bundled name of its model.
        what: Its setting in words.
        link: Where it was reported.
        work: What it asked for.
        setting: How it was run.
        beyond: What no arithmetic of memory shows.
    """

    model: str
    what: str
    link: str
    work: Work
    setting: Setting
    beyond: tuple[str, ...] = ()


REPORTS = (
    Report(
        "Qwen2.5-VL-72B",
        "LoRA, TP 8, 4 generations, zero3_offload, utilization 0.3, vllm_max_model_len 2048",
        "https://github.com/modelscope/ms-swift/issues/3592",
        Work(generations=4, max_pixels=640_000, completion_tokens=2048, lora_dropout=0.05),
        Setting(
            stage=3,
            offload_optimizer_states=True,
            offload_params=True,
            tensor_parallel=8,
            utilization=0.3,
            max_model_len=2048,
            sleep_level=0,
        ),
        (
            "4 generations are fewer than the 8 GPUs of one engine: up to ms-swift 3.4.1 its GPUs got "
            "different prompts and waited for each other for ever -> ms-swift>=4.5",
            "ranks wait 208 days for one that failed (ddp_timeout 18,000,000 s), which looks like a hang "
            "-> --ddp_timeout 3600",
        ),
    ),
)


def of_model(model: str, work: Work) -> list[Report]:
    """Reports about this model and kind of tuning."""
    name = bundled_name(model)
    return [report for report in REPORTS if report.model == name and report.work.full == work.full]


def reasons(report: Report, machine: Machine) -> Iterator[str]:
    """Why the reported run fails on a machine, each with its fix."""
    shape = shape_of(require_config(report.model))
    for objection in objections(shape, report.work, report.setting, machine):
        yield f"{objection.what} -> {objection.fix}"
    yield from report.beyond
