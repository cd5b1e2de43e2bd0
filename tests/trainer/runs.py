"""Short real runs of the trainer, with some of our switches set."""

import logging
from contextlib import contextmanager
from pathlib import Path

from swift_grpo_ext import testing
from swift_grpo_ext.plugin_files import plugin_file

REWARD = Path(__file__).parents[1] / "e2e" / "length_reward.py"
FIGURES = ("loss", "grad_norm", "kl", "reward", "entropy/mean", "clip_ratio/region_mean")
STOCK = {
    "DISABLE": "trainer.shared_prefix,trainer.vision_once,trainer.skip_old_logps,trainer.chunked_logps,"
    "trainer.shared_prefill,trainer.reduced_recompute,callbacks.report"
}


def figures(model, dataset, output, switches=None, **overrides):
    """What each step logged, by name."""
    overrides = {"reward_funcs": "even_characters", "external_plugins": [REWARD, plugin_file()], **overrides}
    arguments = testing.grpo_arguments(model, dataset, output, **overrides)
    variables = {f"SWIFT_GRPO_EXT_{name}": value for name, value in (switches or {}).items()}
    testing.run_in_process("rlhf", arguments, variables)
    rows = [row for row in testing.read_logging(output) if "loss" in row]
    found = {name: [row[name] for row in rows if name in row] for name in FIGURES}
    return {name: values for name, values in found.items() if values}


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
