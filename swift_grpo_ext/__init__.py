"""swift-grpo-ext: multimodal GRPO in ms-swift that is right, fast, and says so when it is not.

Importing the package registers nothing and loads neither torch nor the host. `register` is the entry:
the files in ``plugins/`` call it when the host imports them through ``--external_plugins``.
"""

from swift_grpo_ext.registration import PARTS, register
from swift_grpo_ext.version import __version__

__all__ = ["PARTS", "__version__", "register"]
