"""Which transformers this is."""

from importlib import metadata

from packaging.version import Version

INSTALLED = Version(metadata.version("transformers"))
FIFTH = INSTALLED.major >= 5
