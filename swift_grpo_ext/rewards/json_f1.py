"""How many fields two decoded JSON values share.

The order of list items does not matter, but the fields of one item stay together: two invoice lines with
their prices swapped are not right.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import TypeAlias

from swift_grpo_ext.rewards.geometry import best_assignment

MAX_DEPTH = 32
"""What lies deeper is not compared."""
MAX_PRODUCT = 60_000
"""Unequal items of lists are matched for the most shared fields while the product of both values' leaves is
not above this; beyond it they are compared in their order, so that no answer takes long."""

Tree: TypeAlias = "str | list[Tree] | dict[str, Tree]"
"""A value with every leaf as text. Empty objects and lists are leaves too."""


def field_f1(predicted: object, gold: object) -> float:
    """F1 of the leaves of two decoded JSON values, 0..1.

    Text is compared with single spaces, 1 equals 1.0, true is not 1.
    """
    ours, theirs = _tree(predicted, 0), _tree(gold, 0)
    both = leaves(ours), leaves(theirs)
    return 2 * _shared(ours, theirs, both[0] * both[1] <= MAX_PRODUCT) / sum(both)


def leaves(tree: Tree) -> int:
    """Number of leaves, at least 1."""
    if isinstance(tree, str):
        return 1
    return sum(map(leaves, tree.values() if isinstance(tree, dict) else tree))


def _tree(value: object, depth: int) -> Tree:
    if isinstance(value, Mapping) and value and depth < MAX_DEPTH:
        return {str(key): _tree(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, (list, tuple)) and value and depth < MAX_DEPTH:
        return [_tree(inner, depth + 1) for inner in value]
    return _leaf(value)


def _leaf(value: object) -> str:
    if isinstance(value, str):
        return f'"{" ".join(value.split())}'
    if isinstance(value, (Mapping, list, tuple)):
        return ("{" if isinstance(value, Mapping) else "[") + ("..." if value else "")
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    return repr(value)


def _shared(one: Tree, other: Tree, matched: bool) -> int:
    """Number of leaves that both have at the same place; `matched` as `MAX_PRODUCT` says."""
    if isinstance(one, str) or isinstance(other, str):
        return int(one == other)
    if isinstance(one, dict) and isinstance(other, dict):
        return sum(_shared(one[key], other[key], matched) for key in one.keys() & other.keys())
    if isinstance(one, dict) or isinstance(other, dict):
        return 0
    total, ours, theirs = _without_equals(one, other)
    if not matched:
        return total + sum(_shared(a, b, matched) for a, b in zip(ours, theirs, strict=False))
    gains = [[_shared(item, counterpart, matched) for counterpart in theirs] for item in ours]
    return total + sum(gains[row][column] for row, column in best_assignment(gains))


def _without_equals(one: list[Tree], other: list[Tree]) -> tuple[int, list[Tree], list[Tree]]:
    """Leaves of the items that both lists have, and the rest of each that may still share some."""
    waiting: dict[str, list[Tree]] = defaultdict(list)
    for item in other:
        waiting[json.dumps(item, sort_keys=True)].append(item)
    total = 0
    ours: list[Tree] = []
    for item in one:
        equal = waiting[json.dumps(item, sort_keys=True)]
        if equal:
            total += leaves(equal.pop())
        elif not isinstance(item, str):
            ours.append(item)
    theirs: list[Tree] = [item for items in waiting.values() for item in items if not isinstance(item, str)]
    return total, ours, theirs
