"""Names that all of ms-swift's trainers use: rows, samples, requests to engines, the template, the log."""

from swift.arguments.tuner_args import TunerArguments as TunerArguments
from swift.callbacks import TrainerCallback as TrainerCallback
from swift.callbacks import callbacks_map as callbacks_map
from swift.infer_engine import InferEngine as InferEngine
from swift.infer_engine import RequestConfig as RequestConfig
from swift.infer_engine import TransformersEngine as TransformersEngine
from swift.infer_engine.protocol import ChatCompletionResponseChoice as ChatCompletionResponseChoice
from swift.infer_engine.protocol import RolloutInferRequest as RolloutInferRequest
from swift.infer_engine.protocol import RolloutOutput as RolloutOutput
from swift.rl_core.data import GRPOBatch as GRPOBatch
from swift.rl_core.data import GRPOSample as GRPOSample
from swift.rl_core.grpo_algorithm import _is_async_reward as _is_async_reward
from swift.rlhf_trainers.utils import encode_sample as encode_sample
from swift.rlhf_trainers.utils import get_even_process_data as get_even_process_data
from swift.template import MaxLengthError as MaxLengthError
from swift.template import Template as Template
from swift.utils import get_logger as get_logger
from swift.utils import remove_response as remove_response
