"""Plugin: the scheduler of three turns with an image each, by name."""

from swift.rollout.multi_turn import multi_turns

from tests.trainer.crops import Crops

multi_turns["crops"] = Crops
