"""Each reward on gold and on garbage: it must run, prefer the gold, and not score everything the same."""

import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace

from swift_grpo_ext.doctor.check import host_table, probing
from swift_grpo_ext.doctor.check.rows import Sample
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.doctor.check.unknown import PLUGIN
from swift_grpo_ext.errors import SettingsError, SwiftGrpoExtError
from swift_grpo_ext.findings import Finding, Severity
from swift_grpo_ext.rewards import catalogue
from swift_grpo_ext.rewards.contract import Reward, Unscorable
from swift_grpo_ext.rewards.gold.columns import gold_completion, gold_from
from swift_grpo_ext.rewards.offline.scoring import TOLERANCE, with_image_sizes
from swift_grpo_ext.rewards.runtime.rules import SETTING, load_table

_BUDGET = 35.0  # seconds for all rewards together; what is left after that is named and not run
_ROWS = 4
# Rewards of the host that compare with a gold answer, in a form that they say themselves.
Parameters = dict[str, object]
_READ_GOLD = ("accuracy", "cosine")
_MEND_GOLD = "check the column that holds the gold answer"
_MEND_FORM = "check the column that holds the gold answer, and the form of answer that it reads"


def findings(run: Run, samples: list[Sample]) -> Iterator[Finding]:
    """What is wrong with the rewards, on the first rows of the data."""
    named = run.arguments.reward_funcs or []
    names = [name for name in named if not set("$, ") & set(name.partition(":")[0]) and _split(name)[0]]
    started, constant = time.monotonic(), list[Finding]()
    job = probing.ProbeJob(_plugins(run), "rewards" in run.parts)
    for name in dict.fromkeys(names):
        base, given = _split(name)
        found: Finding | None = None
        if base in catalogue.NAMES:
            if "rewards" in run.parts:
                found = _by_its_rule(run, catalogue.get_reward(base), samples, given)
        elif not samples and not job.plugins and name in host_table.names("reward_funcs"):
            continue  # it is there, and there is nothing to try it on
        elif time.monotonic() - started > _BUDGET:
            what = "no time was left to run it"
            found = Finding("reward-not-run", Severity.NOTE, what, name, not_checked="a reward")
        else:
            found = _of_others(run, job, name, samples)
        if found:
            constant += [found] * (found.rule == "reward-constant")
            yield found
    same = names and [one.where for one in constant] == list(dict.fromkeys(names))
    if same and not run.arguments.reward_model:
        yield _no_variance(names, constant)


def _split(name: str) -> tuple[str, dict[str, object]]:
    """A name and the parameters of its short form; "" for one that does not fit, which a rule reports."""
    try:
        return catalogue.split_form(name)
    except SwiftGrpoExtError:
        return "", {}


def _no_variance(names: list[str], constant: list[Finding]) -> Finding:
    """Nothing tells completions apart; less sure where a reward may read answers of another form."""
    what, severity = "no reward tells one completion from another, so every advantage is 0", Severity.ERROR
    if any(one.fix == _MEND_FORM for one in constant):
        what, severity = f"{what}, unless they read a form of answer that was not tried", Severity.WARNING
    fix = "print what the reward receives; look at its answer format and its columns"
    return Finding("no-variance", severity, what, f"--reward_funcs {' '.join(names)}", fix, ("B3",))


def _plugins(run: Run) -> tuple[str, ...]:
    """The user's own plugin files that are here."""
    found = [run.find(file) for file in run.plugins if file != PLUGIN]
    here = [path.resolve() for path in found if path and path.is_file()]
    ours = "from swift_grpo_ext import register"
    return tuple(str(path) for path in here if ours not in path.read_text(encoding="utf-8", errors="replace"))


def _by_its_rule(run: Run, reward: Reward, samples: list[Sample], given: Parameters) -> Finding | None:
    """A reward of ours on the rows that the reward table gives it, with its parameters there."""
    text = run.environ.get(SETTING, "").strip()
    path = run.find(text) if text and not text.startswith("{") else None
    try:
        table = load_table(str(path or text))
        rule = table.rule(reward.name)
        reward.declared.checked(rule.parameters)
    except SettingsError as error:
        return Finding("reward-table", Severity.ERROR, error.what, error.where, error.fix)
    own = [one for one in samples if not rule.tasks or rule.is_for(one.columns.get(table.task_column))]
    if samples and not own:
        what = f"{reward.name}: none of the first {len(samples)} rows is of its tasks {', '.join(rule.tasks)}"
        return Finding("reward-not-run", Severity.NOTE, what, samples[0].where, not_checked="a reward")
    if rule.gold:
        own = [replace(one, columns=gold_from(one.columns, reward.gold, rule.gold)) for one in own]
    return _of_catalogue(reward, own, {**rule.parameters, **given})


def _of_catalogue(reward: Reward, samples: list[Sample], parameters: Parameters) -> Finding | None:
    """A reward of ours must find its gold, give it the maximum, and garbage less."""
    if not reward.gold or not samples:
        return None
    golds = (sample.columns.get(column) for sample in samples for column in reward.gold)
    if all(gold in (None, "", []) for gold in golds):  # 0 and False are golds
        columns = ", ".join(sorted(_own_columns(samples)))
        what = f"{reward.name} finds no gold in {len(samples)} rows with the columns {columns}"
        fix = f"a column {' or '.join(reward.gold)}"
        return Finding("reward-column", Severity.ERROR, what, samples[0].where, fix)
    if reward.cost != "inline":
        return None
    pairs = [(sample, _gold_and_garbage(reward, sample, parameters)) for sample in samples]
    scored = [pair for _, pair in pairs if pair is not None]
    below = [sample.where for sample, pair in pairs if pair and pair[0] < reward.high - TOLERANCE]
    losing = sum(gold <= garbage for gold, garbage in scored)
    if losing:
        what = f"{reward.name} scores the gold no higher than garbage in {losing} of {len(scored)} rows"
        return Finding("gold-does-not-win", Severity.ERROR, what, samples[0].where, _MEND_GOLD)
    elif below:
        count = f"{len(below)} of {len(scored)} rows"
        what = f"{reward.name} gives the gold answer less than its maximum in {count}"
        return Finding("gold-below-maximum", Severity.WARNING, what, below[0], "swift-grpo-ext score --gold")
    elif not scored:
        what = f"{reward.name} cannot score any of {len(samples)} rows"
        return Finding("reward-none", Severity.ERROR, what, samples[0].where, _MEND_GOLD, ("B3",))
    return None


def _gold_and_garbage(reward: Reward, sample: Sample, parameters: Parameters) -> tuple[float, float] | None:
    (columns,) = with_image_sizes([sample.columns], sample.folder, gold=True)
    try:
        gold = reward.outcome(gold_completion(reward, columns, **parameters), columns, parameters).score
    except Unscorable:
        return None
    if gold is None:
        return None
    garbage = (reward.outcome(text, columns, parameters).score for text in probing.GARBAGE)
    return gold, max(reward.low if score is None else score for score in garbage)


def _of_others(run: Run, job: probing.ProbeJob, name: str, samples: list[Sample]) -> Finding | None:
    """A reward of the host or of a plugin."""
    arguments = _arguments(run)
    probes = probing.probes(samples[:_ROWS])
    answer = probing.ask(job, name, arguments, probes[:1])
    if answer.ended == "value" and probes and "scores" in answer.value:
        answer = probing.ask(job, name, arguments, probes)
        if answer.ended == "timeout":
            what = f"{len(probes)} completions take longer than {probing.LIMIT:g} s"
            return Finding(
                "reward-slow", Severity.WARNING, what, name, "score them together, or side by side"
            )
    if answer.ended != "value":
        return _failure(name, answer.ended, str(answer.value), samples)
    elif "unknown" in answer.value:
        nearest = answer.value["unknown"]
        fix = f"did you mean {nearest[0]}?" if nearest else "register it: orms[...] in --external_plugins"
        if job.plugins or all(file == PLUGIN for file in run.arguments.external_plugins or [PLUGIN]):
            what = f"no reward is called {name}"
            return Finding("unknown-reward", Severity.ERROR, what, "--reward_funcs", fix)
    elif probes:
        return _judged(name, probes, answer.value["scores"])
    return None


def _failure(name: str, ended: str, details: str, samples: list[Sample]) -> Finding:
    lines = details.strip().splitlines()
    last = lines[-1] if lines else "no reason given"
    frames = [line.strip() for line in lines if line.strip().startswith("File ")]
    place = next((frame for frame in reversed(frames) if "/lib/python" not in frame), "")
    if ended == "timeout":
        fix = "give its calls a time limit, or set SWIFT_GRPO_EXT_REWARD_TIMEOUT"
        return Finding("reward-hangs", Severity.ERROR, f"one completion: {last}", name, fix, ("B9",))
    if "missing" in last and "argument" in last:
        columns = ", ".join(sorted(_own_columns(samples))) or "none"
        what = f"it needs a column that the data lacks: {last}; the columns are {columns}"
        wanted, own = re.findall(r"'(\w+)'", last), _own_columns(samples)
        new = json.dumps({min(own): wanted[-1]}) if own and wanted else '{"old": "new"}'
        fix = f"--columns '{new}', or add the column"
        return Finding("reward-column", Severity.ERROR, what, name, fix)
    where = f"{name} {place}".strip()
    return Finding("reward-fails", Severity.ERROR, f"it fails: {last}", where, "fix it", ("B9",))


def _judged(name: str, probes: list[probing.Probe], scores: list[float | str | None]) -> Finding | None:
    if len(scores) != len(probes):
        what = f"{len(scores)} scores for {len(probes)} completions"
        return Finding("reward-length", Severity.ERROR, what, name, "return one score for each", ("B8",))
    broken = sorted({score for score in scores if isinstance(score, str)})
    if broken:
        what = f"it returns {' and '.join(broken)}"
        return Finding("reward-not-finite", Severity.ERROR, what, name, "return None for no score", ("B4",))
    plain = [None if isinstance(score, str) else score for score in scores]
    numbers = [score for score in plain if score is not None]
    if not numbers:
        return Finding("reward-none", Severity.ERROR, "it scores nothing", name, _MEND_GOLD, ("B3", "B7"))
    margin = probing.margin_of(probes, plain)
    if max(numbers) - min(numbers) < 1e-9:
        what = f"it gives {numbers[0]:g} to every one of {len(numbers)} right, wrong and empty answers"
        severity = Severity.ERROR if name in _READ_GOLD else Severity.WARNING
        # A reward that finds no answer gives 0 or a penalty; what praises garbage does not look at all.
        fix = _MEND_GOLD if name in _READ_GOLD or numbers[0] > 0 else _MEND_FORM
        return Finding("reward-constant", severity, what, name, fix, ("B3",))
    elif margin.best <= 0 and name in _READ_GOLD:
        what = "it never prefers the gold answer"
        return Finding("gold-does-not-win", Severity.ERROR, what, name, _MEND_GOLD)
    elif margin.best <= 0 and margin.inverted:
        what = "it scores wrong answers higher than the gold answer in every row"
        return Finding("gold-does-not-win", Severity.ERROR, what, name, "turn its comparison round")
    elif margin.best > 0 and margin.garbage >= margin.gold:
        what = f"it scores garbage {margin.garbage:g}, the gold answer {margin.gold:g}"
        return Finding("gold-does-not-win", Severity.WARNING, what, name, "an empty answer must score least")
    return None


def _arguments(run: Run) -> dict[str, object]:
    """What reward classes read from ``args``, with the defaults that the host fills in."""
    plain = (str, int, float, bool, list, type(None))
    own = run.arguments
    given = ((name, value) for name, value in own.values.items() if own.known(name))
    values: dict[str, object] = {name: value for name, value in given if isinstance(value, plain)}
    for name in ("soft_max_length", "cosine_max_len"):
        if values.get(name) is None:
            values[name] = values.get("max_completion_length")
    return values


def _own_columns(samples: list[Sample]) -> set[str]:
    return {column for sample in samples for column in sample.columns if column not in probing.NOT_GOLD}
