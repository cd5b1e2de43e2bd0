"""Plugin: the second rank takes a third of a second to read an image."""

import os
import time
from functools import wraps

from swift_grpo_ext.models import images

read = images.read_source


@wraps(read)
def slowly(*args):
    time.sleep(0.3)
    return read(*args)


if os.environ["RANK"] == "1":
    images.read_source = slowly
