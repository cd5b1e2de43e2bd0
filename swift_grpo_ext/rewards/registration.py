"""Puts the catalogue into the host's ``orms`` table."""

from collections import Counter
from collections.abc import Iterable, Sequence

from swift.rewards.orm import orms
from swift.utils import import_external_file

from swift_grpo_ext.errors import RewardError
from swift_grpo_ext.rewards import catalogue
from swift_grpo_ext.rewards.contract import RewardFunction
from swift_grpo_ext.rewards.runtime.of_catalogue import AwaitedOfCatalogue, OfCatalogue
from swift_grpo_ext.rewards.runtime.rules import load_table
from swift_grpo_ext.settings import current_settings


def register_orms() -> list[str]:
    """Register each reward as a class of its name, which metrics show, and check the reward table."""
    load_table(current_settings().reward_table)
    for name in catalogue.NAMES:
        orms[name] = _class_of(name, name, {})
    return list(catalogue.NAMES)


def require_known(names: Sequence[str], where: str = "--reward_funcs") -> None:
    """Check names of ``--reward_funcs`` or the table, register those with parameters, skip empty ones.

    Raises:
        RewardError: No reward has one of them; the nearest is given.
    """
    forms = {text: catalogue.split_form(text) for text in filter(None, names)}
    used = Counter(name for name, _ in forms.values())
    for text, (name, parameters) in forms.items():
        if parameters:  # metrics show parameters only if a reward is asked for twice
            orms[text] = _class_of(name, text if used[name] > 1 else name, parameters)
        if text not in orms:
            fix = (
                f"{catalogue.meant_by(text, orms)} (a reward of your own: orms[{text!r}] = its class, in a "
                "file of --external_plugins)"
            )
            raise RewardError(f"no reward is called {text!r}", where=where, fix=fix)


def function_named(name: str, plugins: Sequence[str]) -> RewardFunction:
    """A reward of ms-swift or of the user's plugin files, ready to be called.

    Raises:
        RewardError: No reward has this name.
    """
    for path in plugins:
        import_external_file(path)
    require_known([name])
    function: RewardFunction = orms[name]()
    return function


def tell_frame(functions: Iterable[object], frame: str | None) -> None:
    """Tell rewards of the catalogue the frame in which the model's family writes."""
    for function in functions:
        if isinstance(function, OfCatalogue):
            function.in_frame(frame)


def _class_of(name: str, shown: str, given: dict[str, object]) -> type:
    """A reward class as ms-swift instantiates it; metrics show its name."""
    reward = catalogue.get_reward(name)
    base = AwaitedOfCatalogue if reward.cost == "async" else OfCatalogue

    def start(self: OfCatalogue, args: object = None, **kwargs: object) -> None:
        base.__init__(self, reward, args, given=given, name=shown)

    return type(shown, (base,), {"__init__": start, "__doc__": reward.__doc__})
