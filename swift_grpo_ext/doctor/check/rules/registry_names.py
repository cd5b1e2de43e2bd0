"""Names that the host looks up in a table of its own, after it has loaded the model."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping

from swift_grpo_ext.doctor.check.rules.table import table
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.findings import Problem, Severity
from swift_grpo_ext.models.families import FAMILIES


def _schedulers() -> Iterable[str]:
    from transformers import SchedulerType

    return [member.value for member in SchedulerType]


def _callbacks() -> Iterable[str]:
    from swift.callbacks import callbacks_map

    return callbacks_map


def _turns() -> Iterable[str]:
    from swift.rollout import multi_turns

    return multi_turns


def _templates() -> Iterable[str]:
    from swift.template import TEMPLATE_MAPPING

    return {*TEMPLATE_MAPPING, *(facts.host_template for facts in FAMILIES.values())}


def _models() -> Iterable[str]:
    from swift.model import MODEL_MAPPING

    return {*MODEL_MAPPING, *(facts.host_model_type for facts in FAMILIES.values())}


def _optimizers() -> Iterable[str]:
    from swift.optimizers import optimizers_map

    return optimizers_map


def _reward_plugins() -> Iterable[str]:
    from swift.rewards import rm_plugins

    return rm_plugins


def _strategies() -> Iterable[str]:
    from transformers.trainer_utils import IntervalStrategy

    return [member.value for member in IntervalStrategy]


def _trackers() -> Iterable[str]:
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

    return {*INTEGRATION_TO_CALLBACK, "all", "none"}


def _attentions() -> Iterable[str]:
    from transformers import AttentionInterface

    return {*AttentionInterface._global_mapping, "eager", "flash_attn"}


_TABLES: Mapping[str, Callable[[], Iterable[str]]] = {
    "lr_scheduler_type": _schedulers,
    "callbacks": _callbacks,
    "multi_turn_scheduler": _turns,
    "template": _templates,
    "model_type": _models,
    "optimizer": _optimizers,
    "reward_model_plugin": _reward_plugins,
    "eval_strategy": _strategies,
    "report_to": _trackers,
    "attn_impl": _attentions,
}
# Tables that no plugin of ms-swift adds to.
_FIXED = frozenset({"lr_scheduler_type", "eval_strategy", "report_to"})


@table.rule(
    "unknown-name",
    Severity.ERROR,
    symptoms=(
        "ValueError: ... is not a valid SchedulerType, please select one of",
        "AssertionError: assert args.multi_turn_scheduler in multi_turns",
        "KeyError for the name of a template, a model_type, a callback or an optimizer",
        "ValueError: rm_plugin ... is not implemented in swift.rewards",
        "ValueError: ... is not a valid IntervalStrategy, please select one of",
        "is not supported, only azure_ml, comet_ml, mlflow",
        'ValueError: Specified `attn_implementation="..."` is not supported.',
    ),
    cause="The parser takes any word; the host looks it up in its table only when it needs it.",
)
def _unknown(run: Run) -> Iterator[Problem]:
    for argument, names in _TABLES.items():
        if run.has_plugins_of_the_user and argument not in _FIXED:
            continue  # they may register any name
        value = run.arguments.values.get(argument)
        for name in value if isinstance(value, list) else [value] if value else []:
            known = sorted(names())
            # A name with a slash is that of an attention kernel on a hub.
            if name not in known and "/" not in str(name) and not run.unsure(argument):
                nearest = difflib.get_close_matches(name, known, n=1)
                fix = f"did you mean {nearest[0]}?" if nearest else "leave it out, the host finds it"
                yield Problem(f"the host knows no {argument} called {name}", f"--{argument}", fix)
