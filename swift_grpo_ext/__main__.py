"""``python -m swift_grpo_ext``: the ``swift-grpo-ext`` command of this Python."""

from swift_grpo_ext.cli import main

main()
