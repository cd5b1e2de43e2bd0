"""Stands in for FP8 tensors: a type that no tensor is an instance of."""


class Float8Tensor:
    pass
