"""The installed release of transformers."""

from importlib import metadata

from packaging.version import Version

INSTALLED = Version(metadata.version("transformers"))
FIFTH = INSTALLED.major >= 5
# Each kind of layer can be handed its own mask; and no token sees past its window, not even its own image.
MASKS_BY_KIND = Version("5.13") <= INSTALLED
