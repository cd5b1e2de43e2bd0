"""A plugin for the tests: every evaluation on held-out rows says that the reward has fallen."""

from swift_grpo_ext.watch.held_out import HeldOutHistory

HeldOutHistory.why_stop = lambda self, patience: "fallen" * patience
