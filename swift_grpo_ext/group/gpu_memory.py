"""GPU memory beside the activations of a micro-batch: arithmetic in bytes, without torch.

One model for ``check``, ``plan`` and the trainer's cut of micro-batches. Model states are those of
DeepSpeed's estimators (ZeRO, https://arxiv.org/abs/1910.02054): 2 bytes for a 16-bit gradient, 12 for the
fp32 weight and Adam's moments. What no formula knows is a pair, least and most.
"""

GIB = 2**30

CONTEXT = (0.4 * GIB, 2 * GIB)  # CUDA context, loaded kernels, cuBLAS and attention workspaces
COMMUNICATORS = (0.2 * GIB, 1.6 * GIB)  # NCCL's buffers, of one communicator or of several
WORKSPACES = 0.4 * GIB  # the part of CONTEXT that comes only with the first pass
ASLEEP = (0.6 * GIB, 3 * GIB)  # what vLLM keeps while it sleeps: graphs, workspaces, communicators
LIVE = 1_000_000_000  # elements that ZeRO-3 may gather (stage3_max_live_parameters of the presets)


def gradient_bytes(
    trained: float, stage: int, ranks: int, bucket: float = 0, offloaded: bool = False
) -> float:
    """16-bit gradients on one GPU, with the bucket (elements) in which ZeRO reduces them."""
    bucket = 2 * min(bucket, trained)
    if stage == 0:
        copies = 1 + (ranks > 1)  # DDP's buckets are a second copy
        return 2 * copies * trained
    if stage == 1:
        return 2 * trained + bucket
    return (0 if offloaded else 2 * trained / ranks) + bucket


def optimizer_bytes(trained: float, stage: int, ranks: int, offloaded: bool = False) -> float:
    """fp32 weights and Adam's moments on one GPU; without DeepSpeed the moments alone, in 16 bits."""
    if stage == 0:
        return 4 * trained
    return 0 if offloaded else 12 * trained / ranks


def gathered_bytes(total: float, largest: float, stage: int) -> float:
    """16-bit weights that ZeRO-3 has gathered at one time, of so many and with so large a module."""
    return 2 * min(total, LIVE + largest) if stage == 3 else 0
