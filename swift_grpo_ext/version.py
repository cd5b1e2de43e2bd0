"""The package's version, read by the build backend and by ``swift-grpo-ext env``."""

__version__ = "0.1.0"
