"""A plugin for runs on the made-up device: a scheduler of several turns, each with an image."""

from swift.rollout.multi_turn import multi_turns

from tests.trainer.crops import Crops

multi_turns["crops"] = Crops
