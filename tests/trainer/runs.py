"""Short real runs of the trainer, with some of our switches set."""

import json
import logging
from contextlib import contextmanager
from pathlib import Path

from torch.optim.optimizer import register_optimizer_step_pre_hook

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file
from swift_grpo_ext.watch.journal import GAINS
from tests.precision import double_copy, in_float64

REWARD = Path(__file__).parents[1] / "e2e" / "length_reward.py"
FIGURES = ("loss", "grad_norm", "kl", "reward", "entropy/mean", "clip_ratio/region_mean")
# LLaVA's token between the lines of an image trains in full training, so that its features change.
CHANGING_FEATURES = ("llava_onevision",)
STOCK = {
    "DISABLE": "trainer.shared_prefix,trainer.vision_once,trainer.skip_old_logps,trainer.chunked_logps,"
    "trainer.shared_prefill,trainer.reduced_recompute,trainer.prepare_ahead,callbacks.report"
}


def figures_in_double(model, dataset, output, switches=None, **overrides):
    """The figures of a run in double precision, whose rounding no processor and no number of threads shows."""
    model = double_copy(model)
    with in_float64():
        return figures(model, dataset, output, switches, **overrides)


def figures(model, dataset, output, switches=None, **overrides):
    """What each step logged, by name."""
    overrides = {"reward_funcs": "even_characters", "external_plugins": [REWARD, plugin_file()], **overrides}
    arguments = testing.grpo_arguments(model, dataset, output, **overrides)
    variables = {f"SWIFT_GRPO_EXT_{name}": value for name, value in (switches or {}).items()}
    testing.run_in_process("rlhf", arguments, variables)
    rows = [row for row in testing.read_logging(output) if "loss" in row]
    found = {name: [row[name] for row in rows if name in row] for name in FIGURES}
    return {name: values for name, values in found.items() if values}


def gains(output):
    """The state of each optimisation of the newest run, by name, and why it is off."""
    return json.loads((testing.newest_version(output) / GAINS).read_text())["gains"]


@contextmanager
def told():
    """What the host's logger says; it does not propagate."""
    messages = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logger = logging.getLogger("swift")
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)


@contextmanager
def first_gradients():
    """Gradients of all parameters that train, at the first step of the run inside."""
    found = []

    def keep(optimizer, args, kwargs):
        if not found:
            of_groups = (one for group in optimizer.param_groups for one in group["params"])
            found.extend(one.grad.clone() for one in of_groups if one.grad is not None)

    hook = register_optimizer_step_pre_hook(keep)
    try:
        yield found
    finally:
        hook.remove()


def mixed_rows(digits, path, most=3):
    """Rows with no image to three, in the order 3, 0, 1, 2, shorter and longer; of a language model all without."""
    given = [json.loads(line) for line in digits.train.read_text().splitlines()]
    rows = []
    for number in range(8):
        images = (3, 0, 1, 2)[number % 4] if most > 1 else (number + 1) % 2 * most
        pictures = [row["images"][0] for row in given[3 * number : 3 * number + images]]
        # Over a chunk of 64 tokens; not where one image is the most: LLaVA's vocabulary is the published one.
        hint = "The digit looks round, so answer with one digit. " * (3 * (number % 3) * (most != 1))
        content = " and ".join(["<image>"] * images) + f"{hint}What is it, for number {number}?"
        row = {"messages": [{"role": "user", "content": content}]}
        rows.append({**row, "images": pictures} if most else row)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
