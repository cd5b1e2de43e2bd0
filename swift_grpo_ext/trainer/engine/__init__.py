"""Does the rollout engine sample from the policy that is trained? One room, used through `EngineCheck`.

A rollout is recorded (`EngineCheck.begin`, `EngineCheck.turn`, `EngineCheck.note`). `EngineCheck.compare` has
the trainer compute a few of its completions (`comparison`), judges the distance and its likely cause
(`agreement`, and `prompts` where the prompts differ: both need no trainer), and returns what the monitors
report. The old pass asks `EngineCheck.agrees` before it takes the engine's log-probs for its own.
"""

from swift_grpo_ext.trainer.engine.check import EngineCheck

__all__ = ["EngineCheck"]
