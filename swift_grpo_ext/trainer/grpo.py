"""The trainer that the host builds for ``--rlhf_type grpo``."""

from __future__ import annotations

from swift.rlhf_trainers import GRPOTrainer as HostGRPOTrainer


class GRPOTrainer(HostGRPOTrainer):
    """The host's GRPO trainer. So far it changes nothing."""
