"""Layouts of prompts with their completions: trees of depth two."""

from typing import NamedTuple

from swift_grpo_ext.group.layout import PackLayout
from swift_grpo_ext.group.tree import Node


class Star(NamedTuple):
    """``prompt`` tokens from ``start`` on, then ``completions`` (tokens of each)."""

    start: int
    prompt: int
    completions: tuple[int, ...]

    @property
    def stop(self):
        return self.start + self.prompt + sum(self.completions)


def star_layout(sizes, form):
    """The layout of prompts and completions of such sizes."""
    nodes, at = [], 0
    for prompt, completions in sizes:
        root = len(nodes)
        nodes.append(Node(at, prompt))
        at += prompt
        for length in filter(None, completions):
            nodes.append(Node(at, length, root, 1, prompt))
            at += length
    return PackLayout(tuple(nodes), form)


def stars_of(layout):
    """The prompts of a layout with the completions that have tokens."""
    lengths = {}
    for number, node in enumerate(layout.nodes):
        lengths.setdefault(number if node.parent < 0 else node.parent, []).append(node.length)
    return [Star(layout.nodes[root].start, own[0], tuple(own[1:])) for root, own in lengths.items()]


def rows_in(pack):
    """How many rows of a micro-batch have a loss in its pack."""
    return len((pack.target // pack.seq).unique())
