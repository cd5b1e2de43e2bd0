"""Stands in for the FP8 state: it is always off, and turning it on is an error."""

from contextlib import contextmanager


class FP8GlobalStateManager:
    @staticmethod
    def is_fp8_enabled():
        return False

    @staticmethod
    def is_first_fp8_module():
        return False

    @staticmethod
    def reset():
        pass


@contextmanager
def fp8_autocast(enabled=False, **kwargs):
    if enabled:
        raise RuntimeError("FP8 needs the real transformer_engine")
    yield


fp8_model_init = fp8_autocast
