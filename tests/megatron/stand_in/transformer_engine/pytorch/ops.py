"""Stands in for fused operations: names only, which Megatron subclasses; nothing is fused."""


class FusibleOperation:
    pass


class Sequential(FusibleOperation):
    pass
