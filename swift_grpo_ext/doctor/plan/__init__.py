"""Memory of a GRPO run by arithmetic, before a GPU is touched."""
