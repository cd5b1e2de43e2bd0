"""Scoring of a file without a run: ``swift-grpo-ext score``. Needs neither torch nor the host."""
