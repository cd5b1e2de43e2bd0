"""ms-swift's GRPO trainer on top of transformers' ``Trainer``, and what it takes from TRL."""

from swift.rlhf_trainers import GRPOTrainer as GRPOTrainer
from swift.trainers.patcher import PrinterCallbackNew as PrinterCallbackNew
from swift.trainers.patcher import ProgressCallbackNew as ProgressCallbackNew
from swift.tuners.base import SwiftModel as SwiftModel
from trl.trainer.utils import RepeatSampler as RepeatSampler
