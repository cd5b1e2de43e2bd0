"""Puts the catalogue into the host's ``orms`` table."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from swift.rewards.orm import ORM, AsyncORM, orms
from swift.utils import import_external_file

from swift_grpo_ext.errors import RewardError, nearest
from swift_grpo_ext.rewards import catalogue
from swift_grpo_ext.rewards.contract import Reward, Score
from swift_grpo_ext.rewards.runtime.batch import Batch
from swift_grpo_ext.rewards.runtime.rules import load_table
from swift_grpo_ext.rewards.runtime.runner import Runner
from swift_grpo_ext.settings import current_settings

FIRST_ROWS = 64  # rows of the dataset that are looked at before a run


class _Runs:
    """What both kinds of ORM share: a reward with the parameters of its short form."""

    reward: ClassVar[Reward]
    given: ClassVar[dict[str, object]] = {}
    keeps_ledger = True

    def __init__(self, args: object = None, **kwargs: object) -> None:
        super().__init__(args, **kwargs)  # type: ignore[call-arg]
        self.runner = Runner(self.reward, args, given=self.given)


class RewardORM(_Runs, ORM):
    """One reward of the catalogue as ms-swift calls it: a batch of completions with their columns."""

    def __call__(self, completions: Sequence[str], **columns: object) -> list[Score]:
        """Score a batch: lists with one value per row, and ms-swift's ``trainer_state``."""
        return self.runner(Batch.of(completions, columns))


class AsyncRewardORM(_Runs, AsyncORM):
    """The same for a reward that waits for others; ms-swift awaits all async ones together."""

    async def __call__(self, completions: Sequence[str], **columns: object) -> list[Score]:
        """Score a batch; arguments as for `RewardORM`."""
        return await self.runner.awaited(Batch.of(completions, columns))


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
        if isinstance(function, (RewardORM, AsyncRewardORM)):
            function.runner.in_frame(frame)
            wanted = [name for name in function.reward.columns if name in known]
            if wanted and hasattr(dataset, "select_columns"):
                function.runner.note_columns(dataset.select_columns(wanted)[:FIRST_ROWS])


def _class_of(name: str, shown: str, given: dict[str, object]) -> type:
    reward = catalogue.get_reward(name)
    base = AsyncRewardORM if reward.cost == "async" else RewardORM
    return type(shown, (base,), {"reward": reward, "given": given, "__doc__": reward.__doc__})


def function_named(name: str, plugins: Sequence[str], **given: object) -> Callable[..., object]:
    """A reward of ms-swift or of the user's plugin files, made with what is given, ready to be called.

    Raises:
        RewardError: No reward has this name.
    """
    for path in plugins:
        import_external_file(path)
    if name not in orms:
        meant = nearest(name, orms, cutoff=0.5)
        fix = f"did you mean {meant!r}?" if meant else "give its file with --plugin"
        raise RewardError(f"no reward is called {name!r}", fix=fix)
    function: Callable[..., Any] = orms[name](**given)
    return function
