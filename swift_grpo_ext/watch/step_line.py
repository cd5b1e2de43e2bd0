"""One readable line per step: ms-swift logs a dictionary of 1,900 characters."""

from collections.abc import Mapping

WIDTH = 120  # characters of a line at most
_MOST_REWARDS = 4  # more rewards than this are not listed one by one
_LEAST_FIRST = ("kl", "length", "each", "left", "seconds", "cut off", "held-out", "reward")

Logs = Mapping[str, object]


def step_line(logs: Logs, held_out: float | None = None, width: int = WIDTH, several: bool = False) -> str:
    """A step as a line; parts that exceed the width are left out, the least informative first.

    Args:
        logs: The step's logs by ms-swift, with ``global_step/max_steps`` and ``remaining_time``.
        held_out: The newest mean over held-out rows; None before the first.
        width: Maximum number of characters.
        several: The run has several rewards: each is named, although a batch may hold only rows of one.

    Returns:
        The line; empty for logs of anything but a step (an evaluation, the end of a run).

    >>> step_line({"global_step/max_steps": "7/300", "reward": 0.25, "reward_std": 0.1, "step_time": 1.25})
    'step 7/300  reward 0.250 ± 0.100  1.2 s'
    """
    if "global_step/max_steps" not in logs or not ("reward" in logs or "loss" in logs):
        return ""
    parts = _parts({**logs, "held_out": held_out}, several)
    line = "  ".join(filter(None, parts.values()))
    for name in _LEAST_FIRST:
        if len(line) > width:
            del parts[name]
            line = "  ".join(filter(None, parts.values()))
    return line


def log_line(logs: Logs, held_out: float | None = None, width: int = WIDTH, several: bool = False) -> str:
    """The line printed for any logs: of a step, an evaluation, the end of a run.

    Args:
        logs: The logs by ms-swift.
        held_out: The newest mean over held-out rows; if given, evaluations have already been printed.
        width: Maximum number of characters.
        several: As in `step_line`.

    Returns:
        The line; empty for logs that need no line.

    >>> log_line({"train_runtime": 93.2, "train_steps_per_second": 0.31})
    'trained for 93 s, 0.31 steps a second'
    """
    if "train_runtime" in logs:
        runtime = _figure(logs, "train_runtime") or 0.0
        speed = _figure(logs, "train_steps_per_second") or 0.0
        return f"trained for {runtime:.0f} s, {speed:.2g} steps a second"
    if any(name.startswith("eval_") for name in logs):
        figures = ((name, _figure(logs, f"eval_{name}")) for name in ("reward", "loss", "runtime"))
        words = "  ".join(f"{name} {value:.4g}" for name, value in figures if value is not None)
        return "" if held_out is not None else f"evaluation  {words}"[:width]
    return step_line(logs, held_out, width, several)


def _figure(logs: Logs, *names: str) -> float | None:
    """The first of several metrics that was logged; None without any."""
    values = (logs.get(name) for name in names)
    return next((float(value) for value in values if isinstance(value, (int, float))), None)


def _said(form: str, logs: Logs, *names: str) -> str:
    """The first of several metrics that was logged, formatted; empty without any."""
    value = _figure(logs, *names)
    return "" if value is None else form.format(value)


def _parts(logs: Logs, several: bool) -> dict[str, str]:
    """The parts of the line, in order; empty where nothing was logged."""
    unscored = "reward -" if "completions/mean_length" in logs else ""
    cut_off = _figure(logs, "completions/clipped_ratio")
    left = logs.get("remaining_time")
    return {
        "step": f"step {logs['global_step/max_steps']}",
        "reward": _said("reward {:.3f}", logs, "reward") + _said(" ± {:.3f}", logs, "reward_std") or unscored,
        "each": _each_reward(logs, several),
        "held-out": _said("held-out {:.3f}", logs, "held_out"),
        "length": _said("length {:.0f}", logs, "completions/mean_length"),
        "cut off": "" if cut_off is None else f"cut off {100 * cut_off:.0f} %",
        # KL if there is a reference model, else entropy.
        "kl": _said("kl {:.2g}", logs, "kl")
        or _said("entropy {:.2f}", logs, "entropy/mean", "watch/entropy"),
        "seconds": _said("{:.1f} s", logs, "step_time", "train_speed(s/it)"),
        "left": f"{left} left" if left else "",
    }


def _each_reward(logs: Logs, several: bool) -> str:
    """The mean of each reward, if there are several."""
    logged = [name.split("/")[1] for name in logs if name.startswith("rewards/") and name.endswith("/mean")]
    means = {name: _figure(logs, f"rewards/{name}/mean") for name in logged}
    words = [f"{name} {mean:.2f}" for name, mean in means.items() if mean is not None]
    return "  ".join(words) if (several or len(words) > 1) and len(words) <= _MOST_REWARDS else ""
