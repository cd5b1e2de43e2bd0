"""A plugin that gives a target of a patch another signature, as a later release of the host might."""

from swift.trainers.mixin import SwiftMixin

stock = SwiftMixin._fix_gradient_checkpointing


def _fix_gradient_checkpointing(self, force=False):
    return stock(self)


SwiftMixin._fix_gradient_checkpointing = _fix_gradient_checkpointing
