"""Rows that make trees: turns of a trajectory, branches of a search, completions that open alike."""

import random

FIRST, LAST = 10, 60  # ids of text in tests


def tokens(rng, count):
    return [rng.randrange(FIRST, LAST) for _ in range(count)]


def completion(*parts):
    """``(ids, mask)`` of parts ``(ids, has a loss)``."""
    ids = [token for part, _ in parts for token in part]
    return ids, [int(loss) for part, loss in parts for _ in part]


def caterpillar(rng, prompt=12, turn=9, turns=3, trajectories=2, last_only=False, thought=0):
    """A row for each turn: with ``thought`` tokens of a turn that later rows do not have any more."""
    start, rows = tokens(rng, prompt), []
    for _ in range(trajectories):
        history = []
        for _ in range(turns):
            thinking, answer, tool = tokens(rng, thought), tokens(rng, turn), tokens(rng, 3)
            said = [(thinking, True), (answer, True)]
            if last_only:
                rows.append((start + [token for part, _ in history for token in part], completion(*said)))
            else:
                rows.append((start, completion(*history, *said)))
            history += [(answer, not last_only), (tool, False)]
    return rows


def branching(rng, prompt=8, run=6, depth=3, width=2):
    """All leaves of a tree of turns, loss on each turn."""
    start, rows = tokens(rng, prompt), []

    def grow(parts, left):
        if not left:
            rows.append((start, completion(*parts)))
            return
        for _ in range(width):
            grow([*parts, (tokens(rng, run), True), (tokens(rng, 2), False)], left - 1)

    grow([], depth)
    return [(prompt, (ids[:-2], mask[:-2])) for prompt, (ids, mask) in rows]


def opened(rng, prompt=8, run=5, group=6):
    """Completions that agree by chance for up to four tokens, one of them a prefix of another."""
    start, opening = tokens(rng, prompt), tokens(rng, 4)
    rows = [(start, opening[: rng.randrange(5)] + tokens(rng, run)) for _ in range(group)]
    return [*rows, (start, rows[0][1][:-1]), (start, opening[:1])]


def short(rng, group=10):
    """Nodes of one token and two."""
    return [([11, 11, 11], [rng.randrange(10, 12) for _ in range(rng.randrange(1, 8))]) for _ in range(group)]


def mixed():
    """Two tasks at once, with edited turns and branches."""
    rng = random.Random(0)
    return [*caterpillar(rng, thought=4), *branching(rng, width=3, depth=2), *opened(rng)]


FORMS = {
    "caterpillar": caterpillar(random.Random(1)),
    "caterpillar, loss on the last turn": caterpillar(random.Random(2), last_only=True),
    "edited turns": caterpillar(random.Random(3), thought=4),
    "branches": branching(random.Random(4)),
    "chance openings": opened(random.Random(5)),
    "nodes of one token": short(random.Random(6)),
    "all at once": mixed(),
}
