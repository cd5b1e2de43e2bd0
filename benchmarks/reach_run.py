"""One command's settings in two tiny runs, ms-swift's trainer and ours: what was computed in each."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import torch
from bench_operations import Case
from bench_trainers import HOST, OURS, Update, build_trainer, counted, made_up_rollouts
from reach_rows import Row

COMPLETION = 6  # tokens
GAINS = ("shared_prefix", "vision_once", "skip_old_logps")


@cache
def checkpoint(family: str, seed: int, folder: Path) -> Path:
    """A tiny random model; the first of several processes makes it, before the others are there."""
    from swift_grpo_ext import testing

    made = folder / f"{family}-{seed}"
    if made.exists():
        return made
    return testing.tiny_checkpoint(family, made, seed=seed)


@cache
def dataset(folder: Path) -> Path:
    """Prompts of one length, each with another image."""
    from swift_grpo_ext import testing

    made = folder / "digits"
    return made / "train.jsonl" if made.exists() else testing.digits_dataset(made, limit=64).train


def tokens_by_pass(trainer: Any, done: Update) -> Counter[str]:
    """Count from the second generation batch on, and tokens of the language model by pass as well."""
    passes: Counter[str] = Counter()
    seen: set[int] = set()
    scores, generate = trainer._get_per_token_logps_and_entropies, trainer._generate_and_score_completions

    def generated(*args: Any, **kwargs: Any) -> Any:
        passes.clear()
        seen.clear()
        done.tower_calls = done.tokens = 0
        return generate(*args, **kwargs)

    def scored(model: Any, inputs: Any, grpo_batch: Any, *args: Any, **kwargs: Any) -> Any:
        first = id(grpo_batch) not in seen
        seen.add(id(grpo_batch))
        kind = "policy" if torch.is_grad_enabled() else "old" if first else "ref"
        before = done.tokens
        found = scores(model, inputs, grpo_batch, *args, **kwargs)
        passes[kind] += done.tokens - before
        return found

    trainer._generate_and_score_completions = generated
    trainer._get_per_token_logps_and_entropies = scored
    return passes


def says_placeholders(trainer: Any, ask: Any) -> bool:
    """Whether a model that prefers placeholders of images to all other tokens says one."""
    from swift.infer_engine.protocol import RequestConfig, RolloutInferRequest

    from swift_grpo_ext.models.derived import speaking_model

    template = trainer.template
    base = speaking_model(template.get_base_model(trainer.accelerator.unwrap_model(trainer.model)))
    media = [
        id_ for id_, one in template.tokenizer.added_tokens_decoder.items() if "image" in one.content.lower()
    ]

    def prefer(module: Any, args: Any, output: Any) -> Any:
        output[..., media] += 1000.0
        return output

    hook = base.get_output_embeddings().register_forward_hook(prefer)
    request = RolloutInferRequest(messages=[{"role": "user", "content": "Which digit?"}])
    config = RequestConfig(max_tokens=2, temperature=0, return_details=True)
    try:
        (answer,) = ask([request], config)
    finally:
        hook.remove()
    return any(token in media for token in answer.response.choices[0].token_ids)


@contextmanager
def without_flash_kernel() -> Iterator[None]:
    """ms-swift demands flash attention for rows without padding; here SDPA runs, row by row."""
    from itertools import pairwise

    from swift.arguments.sft_args import SftArguments
    from transformers import AttentionInterface

    from swift_grpo_ext.group import interface

    interface.install("sdpa")  # it wraps once per process what it finds
    mapping = AttentionInterface._global_mapping
    plain = AttentionInterface()["sdpa"]

    def row_by_row(
        module: Any,
        query: Any,
        key: Any,
        value: Any,
        attention_mask: Any,
        cu_seq_lens_q: Any = None,
        **options: Any,
    ) -> Any:
        if cu_seq_lens_q is None:
            return plain(module, query, key, value, attention_mask, **options)
        rows = [slice(*ends) for ends in pairwise(cu_seq_lens_q.tolist())]
        parts = [(query[:, :, row], key[:, :, row], value[:, :, row]) for row in rows]
        return torch.cat([plain(module, *part, None, **options)[0] for part in parts], dim=1), None

    check, before = SftArguments._check_padding_free, mapping.get("sdpa")
    SftArguments._check_padding_free = lambda self: None
    mapping["sdpa"] = row_by_row
    try:
        yield
    finally:
        SftArguments._check_padding_free = check
        mapping.pop("sdpa") if before is None else mapping.update(sdpa=before)


def run(path: str, row: Row, ranks: int, folder: Path) -> tuple[Any, Update, Counter[str], bool]:
    """Train two generation batches with one of the trainers."""
    from swift_grpo_ext import testing

    shared = folder.parent
    case = Case(group=row.held * ranks, completion=COMPLETION)
    options = row.arguments(ranks)
    if "teacher_model" in row.args:
        teacher = checkpoint(row.family, 1, shared)
        options |= {"teacher_model": teacher, "teacher_model_type": testing.host_types(teacher)["model_type"]}
    if ranks > 1 and "deepspeed" in row.args:
        options |= {"deepspeed": row.args["deepspeed"]}
    os.environ["MASTER_PORT"] = os.environ.get("MASTER_PORT", "29500")
    options |= {
        "max_length": 512,
        "reward_funcs": "format" if row.group > 1 else None,
        "gradient_checkpointing": True,
    } | options
    model = checkpoint(row.family, 0, shared)
    trainer = build_trainer(path, model, dataset(shared), folder / path, case, **options)
    ask, found = trainer._engine_infer, []
    rewards = trainer._compute_rewards_per_func
    made_up_rollouts(trainer, case, seed=0)
    answer = trainer._engine_infer

    def answer_and_ask(*args: Any, **kwargs: Any) -> Any:
        """Where ZeRO-3 has gathered the weights, as for every rollout."""
        if not found:
            found.append(says_placeholders(trainer, ask))
        return answer(*args, **kwargs)

    trainer._engine_infer = answer_and_ask
    if row.group == 1:  # distilled without rewards
        trainer._compute_rewards_per_func = rewards
    done = Update()
    passes = tokens_by_pass(trainer, done)
    with counted(trainer, done):
        trainer.train()
    return trainer, done, passes, found[0]


def measure(row: Row, ranks: int, folder: Path) -> dict[str, Any]:
    """One row of the table."""
    from swift_grpo_ext.group.cut import alone

    with without_flash_kernel() if "padding_free" in row.args else nullcontext():
        _, stock, stock_passes, _ = run(HOST, row, ranks, folder)
        trainer, ours, passes, unguarded = run(OURS, row, ranks, folder)
    prompts = row.per_rank // row.held
    times = row.steps // 2 * row.sizes[1] // row.sizes[2]  # that the policy passes over a generation batch
    prompt = stock_passes["policy"] // times // row.per_rank - COMPLETION
    copies = round((passes["policy"] / times - row.per_rank * (COMPLETION - 1)) / prompt)
    shared = {prompts: "whole", row.per_rank: "off"}.get(copies, "part") if row.held > 1 else "off"
    gains = {
        "vision_once": 0 < ours.tower_calls <= prompts,
        "skip_old_logps": passes["old"] == 0 < stock_passes["old"],
        "guard": not unguarded,
    }
    off = [name for name in ("vision_once", "skip_old_logps") if not gains[name]]
    later = f"later updates of a generation need it; --steps_per_generation {row.sizes[1]}"
    why = {name: trainer.passes.features.why_off.get(name, later) for name in off}
    reasons = [f"{name}: {reason}" for name, reason in why.items()]
    if row.held == 1 and trainer.cut == alone(row.sizes[0], ranks):  # said of fewer ranks, a smaller group
        trainer.cut = alone(row.sizes[0], row.group)
    if shared != "whole":
        reasons.insert(
            0, f"shared_prefix: {trainer.passes.features.why_off.get('shared_prefix') or trainer.cut}"
        )
    return {
        "script": row.script,
        "completions_of_a_prompt_per_rank": row.held,
        "shared_prefix": shared,
        **gains,
        "tokens": ours.tokens,
        "stock_tokens": stock.tokens,
        "reason": "; ".join(reasons),
    }
