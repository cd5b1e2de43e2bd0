"""A tiny agent of two turns learns by GRPO, on a CPU: it chooses where to look closer, and reads that."""
