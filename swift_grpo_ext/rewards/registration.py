"""Puts the catalogue into the host's ``orms`` table."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from swift.rewards.orm import orms
from swift.utils import import_external_file

from swift_grpo_ext.errors import RewardError, nearest
from swift_grpo_ext.rewards import catalogue
from swift_grpo_ext.rewards.runtime.of_catalogue import AwaitedOfCatalogue, OfCatalogue
from swift_grpo_ext.rewards.runtime.rules import load_table
from swift_grpo_ext.settings import current_settings

FIRST_ROWS = 64  # rows of the dataset that are looked at before a run


def register_orms() -> list[str]:
    """Register each reward as a class of its name, which metrics show, and check the reward table."""
    load_table(current_settings().reward_table)
    for name in catalogue.NAMES:
        orms[name] = _class_of(name, name, {})
    return list(catalogue.NAMES)


def register_short_forms(names: Sequence[str]) -> None:
    """Register names with parameters (``--reward_funcs``); in metrics, one asked for twice shows them."""
    forms = {text: catalogue.split_form(text) for text in names}
    used = Counter(name for name, _ in forms.values())
    for text, (name, given) in forms.items():
        if given:
            orms[text] = _class_of(name, text if used[name] > 1 else name, given)


def prepare(functions: Iterable[object], frame: str | None, dataset: object) -> None:
    """Tell rewards the model's frame, and say once what the dataset's first columns mean to them."""
    known = getattr(dataset, "column_names", None) or () if hasattr(dataset, "__len__") else ()
    for function in functions:
        if isinstance(function, OfCatalogue):
            function.in_frame(frame)
            columns = [name for name in function.reward.columns if name in known]
            if columns and hasattr(dataset, "select_columns"):
                function.note_columns(dataset.select_columns(columns)[:FIRST_ROWS])


def _class_of(name: str, shown: str, given: dict[str, object]) -> type:
    """A class as ms-swift makes rewards of: its name is what metrics show."""
    reward = catalogue.get_reward(name)
    base = AwaitedOfCatalogue if reward.cost == "async" else OfCatalogue

    def start(self: OfCatalogue, args: object = None, **kwargs: object) -> None:
        base.__init__(self, reward, args, given=given, name=shown)

    return type(shown, (base,), {"__init__": start, "__doc__": reward.__doc__})


def require_known(names: Iterable[str]) -> None:
    """Names of ``--reward_funcs``; empty ones stand for functions.

    Raises:
        RewardError: No reward has one of them; the nearest is given.
    """
    for name in filter(None, names):
        if name not in orms:
            meant = nearest(name, orms, cutoff=0.5)
            fix = (
                f"did you mean {meant!r}?"
                if meant
                else "give the file that registers it to --external_plugins"
            )
            raise RewardError(f"no reward is called {name!r}", where="--reward_funcs", fix=fix)


def function_named(name: str, plugins: Sequence[str], **given: object) -> Callable[..., object]:
    """A reward of ms-swift or of the user's plugin files, made with what is given, ready to be called.

    Raises:
        RewardError: No reward has this name.
    """
    for path in plugins:
        import_external_file(path)
    require_known([name])
    function: Callable[..., Any] = orms[name](**given)
    return function
