"""Inputs that ``generate`` hands a model at each step, beside those of a forward pass in training."""

# Positions of the new tokens in the cache, the same for each row; transformers 4 only.
STEP_INPUTS = ("cache_position",)
