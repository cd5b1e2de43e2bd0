"""Ranks wait for the one with most tokens, so groups of a step move to others before they are trained on.

A group moves as a whole, and each rank has as many as before: whatever is divided by a number of completions
or of tokens stays what it was. Groups stay in their step, the largest is computed first.
"""

from collections import ChainMap
from itertools import chain
from math import gcd

from accelerate.utils import gather_object

from swift_grpo_ext.group.balance import Place, dealt
from swift_grpo_ext.losses import why_sizes_matter
from swift_grpo_ext.ms_swift.shared import encode_sample
from swift_grpo_ext.trainer.distributed import is_alone
from swift_grpo_ext.trainer.host import Host
from swift_grpo_ext.trainer.samples import Samples, sampled_tokens


def why_not_balanced(host: Host) -> str:
    """Why groups stay on their ranks, in a clause; empty if they may move."""
    args = host.args
    reasons = {
        "sequence parallel: ranks share their completions; --sequence_parallel_size 1": (
            host.template.sequence_parallel_size > 1
        ),
        "dynamic sampling chooses what ranks have; --dynamic_sample false": args.dynamic_sample,
        "turns of a trajectory stay together; no --multi_turn_scheduler": (
            host.multi_turn_scheduler or host.enable_server_multi_turn
        ),
        "rollouts are of another batch; --async_generate false": args.async_generate,
    }
    depends = why_sizes_matter(
        host.loss_type, with_liger=host.use_liger_loss, top_entropy_quantile=args.top_entropy_quantile
    )
    return depends or next((why for why, holds in reasons.items() if holds), "")


def why_nothing_moves(host: Host) -> str:
    """Why there is nothing to move, in a clause; empty if there may be."""
    if is_alone():
        return "there is one rank"
    return "" if _groups_of_step(host) > 1 else "each rank has one prompt of a step, or parts of prompts"


def balanced(host: Host, samples: Samples, *, shares_prompts: bool) -> Samples:
    """Samples that this rank trains on; a collective, so every rank must come here with its own."""
    size = host.num_generations
    here = host.accelerator.process_index
    groups = [samples[start : start + size] for start in range(0, len(samples), size)]
    tokens = gather_object([[_tokens(host, group, shares_prompts) for group in groups]])
    of_ranks = _places(tokens, _groups_of_step(host))
    elsewhere = chain(*(places for rank, places in enumerate(of_ranks) if rank != here))
    leaving = {(rank, number): groups[number] for rank, number in elsewhere if rank == here}
    for first, *others in leaving.values():
        for sample in others:
            sample.images = first.images  # they are equal, and one object goes once over the wire
    arrived: dict[Place, Samples] = dict(ChainMap(*gather_object([leaving])))
    own = {(here, number): group for number, group in enumerate(groups)}
    return [sample for place in of_ranks[here] for sample in (own | arrived)[place]]


def _places(tokens: list[list[int]], of_step: int) -> list[list[Place]]:
    """Places of the groups that each rank is to have, step by step."""
    of_ranks: list[list[Place]] = [[] for _ in tokens]
    for first in range(0, len(tokens[0]), of_step):
        step = dealt([of_rank[first : first + of_step] for of_rank in tokens])
        for places, added in zip(of_ranks, step, strict=True):
            places += [(rank, first + number) for rank, number in added]
    return of_ranks


def _groups_of_step(host: Host) -> int:
    """Whole groups that each rank has in a step, of one generation batch; 0 where there are parts of them."""
    args = host.args
    micro_batches = gcd(args.gradient_accumulation_steps, args.steps_per_generation)
    number, rest = divmod(args.per_device_train_batch_size * micro_batches, host.num_generations)
    return 0 if rest else number


def _tokens(host: Host, group: Samples, shares_prompts: bool) -> int:
    """Tokens of a group that go through the model."""
    completions = [len(sampled_tokens(sample)) for sample in group]
    with host._template_context(host.template):
        prompt = len(encode_sample(group[0], host.template)["input_ids"]) - completions[0]
    return sum(completions) + prompt * (1 if shares_prompts else len(group))
