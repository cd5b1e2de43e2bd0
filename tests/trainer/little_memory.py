"""A plugin for the tests: a micro-batch holds 32 completion tokens, as on a device with little memory."""

from swift_grpo_ext.group import cut

cut.TOKENS_WITHOUT_MEMORY = 32
