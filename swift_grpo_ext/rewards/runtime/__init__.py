"""Everything around the pure functions: processes with hard limits, composition, failures, metrics."""
