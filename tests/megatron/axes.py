"""What the random configurations of test_sweep.py are drawn from."""

import random
from itertools import product

from tests.megatron.runs import FIXES
from tests.megatron.table import EXPERTS, FROZEN, LORA, PIPELINE, RECOMPUTE, SEQUENCE, Wanted

ROWS = 4  # of the dataset: no generation batch asks more
# The layouts that a family is drawn in: ranks, arguments, and how many ranks have completions of their own.
PLAIN = ((1, {}, 1), (1, {}, 1), (2, SEQUENCE, 1), (2, PIPELINE, 1), (2, {}, 2))
OF_EXPERTS = ((1, {}, 1), (2, EXPERTS, 2), (2, PIPELINE, 1))
LAYOUTS = {
    "qwen2_5_vl": PLAIN,
    "qwen3_vl": PLAIN,
    "qwen3_5": PLAIN,
    "internvl": PLAIN,
    "qwen3_vl_moe": OF_EXPERTS,
}
# Of each axis one entry is drawn. Not --top_entropy_quantile: a tiny model's entropies are so close that rounding decides
# which tokens it takes.
AXES = (
    [{"loss_type": name} for name in ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo")],
    [{}, {}, *({"importance_sampling_level": level} for level in ("sequence", "sequence_token"))],
    [{"beta": 0}, {"beta": 0.04}, {"beta": 0.04, "kl_in_reward": True}],
    [{}, {}, *({"advantage_estimator": name} for name in ("rloo", "reinforce_plus_plus"))],
    [{}, {}, *({"scale_rewards": name} for name in ("batch", "none", "gdpo"))],
    [{}, {}, {"epsilon_high": 0.28}, {"delta": 1.5}],
    [{}, {"log_entropy": True}],
    [{}, {}, {}, {"dynamic_sample": True, "max_resample_times": 2}],
    [{}, {}, {"padding_free": False}],
    [{}, {}, RECOMPUTE, {"recompute_granularity": "selective"}],
    [{}, FROZEN, LORA, {"freeze_llm": True}],
    [{}, {}, {"clip_grad": 0.0}, {"temperature": 1.3}],
    [{}, {}, {"log_completions": True}, {"offload_optimizer": True}, {"use_distributed_optimizer": False}],
)


def drawn(seed: int) -> Wanted:
    """A run that ms-swift's own trainer can make."""
    choose = random.Random(seed).choice
    family = choose(list(LAYOUTS))
    ranks, layout, replicas = choose(LAYOUTS[family])
    arguments = {**FIXES, **layout}
    for axis in AXES:
        arguments.update(choose(axis))
    # Ranks that work on the same completions divide them for the rollout.
    alike = ranks // replicas
    fitting = [
        (group, batch, prompts, updates)
        for group, batch, prompts, updates in _sizes()
        if prompts * replicas <= ROWS and group * prompts % alike == 0
    ]
    group, batch, prompts, updates = choose(fitting)
    completions = group * prompts * replicas
    arguments |= {
        "num_generations": group,
        "micro_batch_size": batch,
        "global_batch_size": completions // updates,
        "steps_per_generation": updates,
        "train_iters": 2 * updates,
    }
    return Wanted(ranks, arguments, family=family, rows=choose(["", "mixed"]))


def _sizes():
    """Completions of a group and of a micro-batch, prompts of a rank, and updates of a generation batch."""
    for group, batch, prompts, updates in product((2, 3, 4, 6, 8), (1, 2, 3, 4), (1, 2, 4), (1, 2, 3)):
        fits = prompts % batch == 0 and (group * prompts) % (batch * updates) == 0
        if fits:
            yield group, batch, prompts, updates
