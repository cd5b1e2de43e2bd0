"""A stand-in for flash-linear-attention in plain PyTorch: what mcore-bridge's gated delta net calls.

Without it the gated delta net refuses rows that are packed end to end, ms-swift's default.
"""
