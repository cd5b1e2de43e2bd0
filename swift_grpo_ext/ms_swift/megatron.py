# ruff: noqa: F401
"""Names of ms-swift and mcore-bridge that our Megatron trainer replaces; this fails where one is gone."""

from mcore_bridge.model.modules.gated_delta_net import causal_conv1d, chunk_gated_delta_rule
from swift.megatron.trainers.base import prepare_batch as _of_base
from swift.megatron.trainers.grpo_trainer import compute_logps_and_entropy_from_logits as _of_trainer
from swift.megatron.trainers.grpo_trainer import deepcopy, get_padding_to
from swift.megatron.trainers.utils import prepare_batch
from swift.megatron.trainers.vocab_parallel_utils import compute_logps_and_entropy_from_logits
