"""Memory and speed of a GRPO run by arithmetic, before a GPU is touched."""
