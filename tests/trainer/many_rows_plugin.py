"""Plugin for runs of their own: `many_rows` in the place of a server. Importing it changes ms-swift's class."""

from swift.rlhf_trainers import GRPOTrainer as HostGRPOTrainer

from tests.trainer import many_rows

HostGRPOTrainer._rollout = many_rows.rollout
