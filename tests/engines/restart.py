"""A plugin for the tests: the first rewards wait until the test has started the rollout server anew."""

import os
import time
from pathlib import Path

from swift.rewards import ORM, orms

FOLDER = Path(os.environ.get("RECORD", "."))


class AfterTheRestart(ORM):
    def __call__(self, completions, **kwargs):
        (FOLDER / "restart").touch()
        deadline = time.monotonic() + 400
        while not (FOLDER / "restarted").exists() and time.monotonic() < deadline:
            time.sleep(0.5)
        return [sum(ord(char) % 2 for char in text) / max(len(text), 1) for text in completions]


orms["after_the_restart"] = AfterTheRestart
