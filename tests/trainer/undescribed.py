"""A plugin that takes from every family what its description says it has not."""

from swift_grpo_ext.trainer import features

features._lacks = lambda base, family, capability: ""
