"""Rollouts of several turns: what their rows share, and which turns get a gradient."""

from collections.abc import Iterator

from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.rules.table import fault, grpo, rule
from swift_grpo_ext.findings import NOTE, Problem

EDITS_HISTORY = "thinking_tips_scheduler"  # of ms-swift
SEARCH = "tree_rollout_scheduler"  # of ms-swift's example treepo
PER_TOKEN = ("bnpo", "dapo", "cispo", "dr_grpo", "fipo")  # losses that add up the tokens of all rows


@rule(
    "turns-tokenized-again",
    NOTE,
    symptoms="rows of several turns share little more than their prompt",
    cause="Rows share what is equal token by token. Turns that come back as text are tokenized again, and "
    "the tokens that are trained on need not be those that were sampled.",
    scope=grpo,
)
def _tokenized_again(run: Run) -> Iterator[Problem]:
    name = run.arguments.multi_turn_scheduler
    if name == EDITS_HISTORY:
        what = "it takes thoughts out of earlier turns, so the rows of a trajectory share their prompt alone"
        yield Problem(what, f"--multi_turn_scheduler {name}", "a scheduler that leaves history as it is")
        return
    for plugin in run.plugins if name else ():
        writes_run = all(text in plugin.text for text in (name, "def run(", "RolloutOutput("))
        if writes_run and "response_token_ids" not in plugin.text:
            what = f"the run() of {name} returns turns as text, and rows part where tokens come out otherwise"
            fix = "RolloutOutput(response_token_ids=[...]), the sampled tokens of each turn"
            yield Problem(what, plugin.name, fix)


def _adds_up(run: Run) -> str:
    losses = run.arguments.loss_type or ""
    names = {losses} if isinstance(losses, str) else set(losses)
    is_search = run.arguments.multi_turn_scheduler == SEARCH
    return next(iter(names.intersection(PER_TOKEN)), "") if is_search else ""


fault(
    "shared-turn-without-gradient",
    NOTE,
    _adds_up,
    "the turns that all leaves of the search share get no gradient from {}",
    "--loss_type",
    "--loss_type grpo, or a scheduler whose root_divergence is above 1",
    symptoms="the first turn of a tree search does not get better",
    cause="A turn that all leaves of a prompt share is in every row of the group, whose advantages add up to "
    "0: a loss that adds tokens up gives it no gradient.",
    scope=grpo,
)
