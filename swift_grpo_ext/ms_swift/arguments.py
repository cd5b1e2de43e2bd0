"""The arguments of ms-swift's GRPO trainer; loads no trainer."""

from swift.rlhf_trainers.arguments import GRPOConfig as GRPOConfig
