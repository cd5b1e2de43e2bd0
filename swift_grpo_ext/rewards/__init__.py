"""Reward functions: what a completion states is compared with the row's gold. The way of the data:

1. The completion, a text. `reading.answer` leaves out the thought, and takes the answer out of its block, its
   box, its fence, its JSON.
2. `reading.assertion.stated` leaves out what the answer only asks, supposes, heard, refuses or takes back.
3. ``stated_...`` of `reading` finds the value: options, a polarity, a count, a number, regions, spans, an
   action, tool calls, mathematics; or none, for a denial, a hedge or a contradiction states nothing.
4. `gold` reads the row: the gold in the same kind of value, frame and unit, or why the row cannot be scored.
5. The reward compares the two: one short function in a file of this folder, with its card as docstring.

`counting` and `reading.counts` are a good pair to read first. `runtime` runs rewards over batches, under
limits and by the reward table; `offline` scores files; `registration` tells ms-swift of them.
"""


def register() -> list[str]:
    """Register every reward of the catalogue in the host's ``orms`` table."""
    from swift_grpo_ext.rewards.registration import register_orms

    return register_orms()
