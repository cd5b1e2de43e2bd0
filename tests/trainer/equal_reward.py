"""A reward that is the same for every completion of some prompts, told by their image."""

import hashlib
import os

from swift.rewards import ORM, orms


class Silent(ORM):
    def __call__(self, completions, images=None, **kwargs):
        share = float(os.environ.get("SILENT_SHARE", "0.5"))
        scores = [float(len(text) % 2) for text in completions]
        names = [
            str(one[0]["path"] if isinstance(one[0], dict) else one[0]).rpartition("/")[2] for one in images
        ]
        marks = [hashlib.sha256(name.encode()).digest()[0] / 256 for name in names]
        return [1.0 if mark < share else score for mark, score in zip(marks, scores, strict=True)]


orms["silent"] = Silent
