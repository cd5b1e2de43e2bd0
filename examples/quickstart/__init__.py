"""A tiny vision-language model learns to read handwritten digits by GRPO, on a CPU, in minutes."""
