"""A plugin for the tests: a reward that fails on some completions."""

from swift.rewards import ORM, orms


class NowAndThen(ORM):
    """Raises for the first call, and scores 0 afterwards."""

    calls = 0

    def __call__(self, completions, **kwargs):
        self.calls += 1
        if self.calls == 1:
            raise KeyError("boxes")
        return [0.0] * len(completions)


orms["now_and_then"] = NowAndThen
