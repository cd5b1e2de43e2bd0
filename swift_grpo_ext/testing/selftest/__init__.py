"""``swift-grpo-ext selftest``: pairs of short CPU runs that must give the same numbers."""
