"""Stands in for quantized tensors: a type that no tensor is an instance of."""


class QuantizedTensor:
    pass
