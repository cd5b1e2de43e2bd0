"""A reward that varies, and what DeepSpeed's ZeRO-3 needs on a CPU: gloo before the model loads."""

import os

if "RANK" in os.environ:
    import deepspeed

    deepspeed.init_distributed("gloo")

from swift.rewards import ORM, orms


class EvenCharacters(ORM):
    def __call__(self, completions, **kwargs):
        return [sum(ord(char) % 2 for char in text) / max(len(text), 1) for text in completions]


orms["even_characters"] = EvenCharacters
