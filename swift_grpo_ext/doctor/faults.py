"""User errors that ms-swift ends with a traceback: here each is one line, with its fix.

Recognized by the innermost ms-swift function in the traceback, and by the exception's text.
"""

import re
from traceback import walk_tb
from types import TracebackType
from typing import NamedTuple

from swift_grpo_ext.errors import RefusedError, in_a_line


class _Fault(NamedTuple):
    function: str  # of ms-swift; empty for any
    says: str  # pattern that the exception, as one line, contains
    fix: str
    what: str = "{error}"  # message; {error} is the exception's own text


_FAULTS = (
    _Fault(
        "_load_dataset_path",
        "StopIteration",
        "give --dataset and --val_dataset files with rows",
        "a file of rows is empty",
    ),
    _Fault(
        "",
        "local path does not exist|Error: path: '|AssertionError: self.system: ",
        "fix the path: those of --dataset, --model, --system and all others count from the folder of the "
        "command",
    ),
    _Fault(
        "_parse_args",
        "remaining_argv",
        "`swift-grpo-ext check` with the same options says which is meant",
        "no option has such a name: {error}",
    ),
    _Fault(
        "download_model",
        "",
        "fix the path, which counts from the folder of the command, or the name",
        "--model or --adapters names no folder here, and no hub provides it: {error}",
    ),
    _Fault(
        "",
        "SafetensorError|no file named model.safetensors|HFValidationError: .*: '/",  # of an adapter
        "copy or download the model or checkpoint again: a file of weights is missing or cut short",
    ),
    _Fault(
        "sample_dataset",
        "ZeroDivisionError",
        "a row needs messages: --columns renames those of yours",
        "no row of a dataset can be read",
    ),
    _Fault(
        "_add_version",
        "(Permission|NotADirectory|OS|FileExists)Error",
        "name a folder that can be made and written by --output_dir",
    ),
    _Fault(
        "import_external_file",
        "",
        "fix the file, or leave it out of --external_plugins",
        "a plugin file cannot be imported: {error}",
    ),
    _Fault(
        "json_parse_to_dict",
        "JSONDecodeError",
        "--deepspeed takes zero0 to zero3, a preset of ours or a file",
        "an option (--deepspeed, --columns ...) is neither a file nor valid JSON",
    ),
    _Fault(
        "_init_generation_batch_params",
        "must be evenly divisible",
        "--num_generations has to divide GPUs x --per_device_train_batch_size x accumulation",
    ),
    _Fault(
        "",
        "Failed to automatically match `(model|template)_type`",
        "or give the folder the published name (Qwen2.5-VL-7B-Instruct), which says both",
    ),
    _Fault("_new_from_pretrained", "FlashAttention", "install flash-attn, or --attn_impl sdpa"),
    _Fault(
        "_new_from_pretrained",
        r"AttributeError: '\w+Config' object",
        "leave --model_type out: config.json says which model it is",
        "--model_type names another kind of model than its config.json: {error}",
    ),
    _Fault(
        "_prepare_rewards",
        "Number of reward weights",
        "give --reward_weights one number for each of --reward_funcs",
    ),
    _Fault(
        "_prepare_rewards",
        "TypeError",
        "register a class whose __call__ takes completions and columns (docs/rewards/write-your-own.md)",
        "a reward of --reward_funcs cannot be made: {error}",
    ),
    _Fault(
        "mu_schedule_function",
        "TypeError",
        "--chord_mu_warmup_steps 50 --chord_mu_decay_steps 1000 --chord_mu_peak 0.5 --chord_mu_valley 0.05",
        "CHORD has no schedule of its weight mu",
    ),
    _Fault(
        "",
        "Could not find the transformer layer class|'Tensor' object has no attribute 'device_mesh'",
        "--deepspeed zero3 in the place of --fsdp",
    ),
    _Fault(
        "",
        "Expected to have finished reduction in the prior iteration",
        "--ddp_find_unused_parameters true, or --freeze_vit true: some weights take part in no forward",
    ),
    _Fault(
        "",
        "probability tensor contains",
        "the figures of the model are not finite: an update was too large; a smaller --learning_rate",
        "no token can be drawn: {error}",
    ),
    _Fault("", "to be on the same device", "move one of them: tensor.to(other.device)"),
    _Fault(
        "",
        "OutOfMemoryError",
        "`swift-grpo-ext plan` says what fits; --tuner_type lora, ZeRO (--deepspeed) and a smaller "
        "--per_device_train_batch_size need less",
    ),
    _Fault(
        "",
        "does not work with use_dora",
        "--use_dora false, or --target_modules without layers of that kind",
    ),
    _Fault(
        "",
        "element 0 of tensors does not require grad",
        "where only the tower trains each row needs an image; else --freeze_llm false",
    ),
)


def in_one_line(error: BaseException, trace: TracebackType | None) -> RefusedError | None:
    """A known fault as an error of ours, with the line of the user's own file that raised it; else None."""
    # Not Ctrl-C during the import of a plugin file, nor an error that already has a line of ours.
    if not isinstance(error, Exception) or "swift-grpo-ext: " in str(error):
        return None
    function = place = ""
    for frame, line in walk_tb(trace):
        file = frame.f_code.co_filename
        place = "" if re.search("site-packages|^<", file) else f"{file}:{line}"
        if frame.f_globals.get("__name__", "").startswith("swift."):  # generated code may have no module
            function = frame.f_code.co_name
    said = in_a_line(error)
    for fault in _FAULTS:
        if fault.function in ("", function) and re.search(fault.says, said):
            return RefusedError(fault.what.replace("{error}", said), where=place, fix=fault.fix)
    return None
