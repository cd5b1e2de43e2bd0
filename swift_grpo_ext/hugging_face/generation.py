"""What ``generate`` hands a model at each step, beside what a forward in training gets."""

# Places of the new tokens in the cache, the same for each row: of transformers 4 alone.
STEP_INPUTS = ("cache_position",)
