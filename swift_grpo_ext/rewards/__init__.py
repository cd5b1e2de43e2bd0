"""Reward functions: what a completion states is compared with the row's gold. The path of a completion:

1. `place.answer_of` finds where the answer stands: its block, its box, its last line; or says why
   it has no place.
2. A file of `values` reads what stands there, by the grammar in its docstring: a count, an option, boxes, an
   action; or says that it does not fit. Nothing else reads.
3. The gold of the row is read by the same grammar (`place.read_gold`; `gold` for boxes, frames and lists of
   texts).
4. The reward compares the two: one short function in a file of this folder, with its card as docstring. It
   returns a `contract.Outcome`: the score, what was read, and why the score is not higher.

`counting` and `values.count` are a good pair to read first. `runtime` runs rewards over batches, under limits
and by the reward table; `offline` scores files; `registration` tells ms-swift of them.
"""


def register() -> list[str]:
    """Register every reward of the catalogue in the host's ``orms`` table."""
    from swift_grpo_ext.rewards.registration import register_orms

    return register_orms()
