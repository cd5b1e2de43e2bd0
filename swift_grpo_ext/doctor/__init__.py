"""Before a run: environment, preflight, planner."""
