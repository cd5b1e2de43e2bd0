"""Registers the Megatron trainer of swift-grpo-ext: give this file's path to ``--external_plugins``."""

import importlib.util
import sys
from pathlib import Path

if importlib.util.find_spec("swift_grpo_ext") is None:  # a checkout that was not installed
    sys.path.append(str(Path(__file__).resolve().parents[1]))

from swift_grpo_ext import register

register(["megatron"])
