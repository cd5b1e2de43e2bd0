"""The table from which ms-swift builds a trainer and its arguments; alone here because it loads neither."""

from swift.trainers.trainer_factory import TrainerFactory as TrainerFactory
