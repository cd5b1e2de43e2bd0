"""Heals GRPO of ms-swift 3.1 to 3.5 for those who cannot upgrade; needs nothing but the installed ms-swift.

    swift rlhf --rlhf_type grpo --external_plugins legacy_swift3.py ...

Each entry of `HEALS` looks at the release, then at the code itself, and touches only what has the defect. One
line says what was done. From ms-swift 4.5 on, use swift-grpo-ext itself.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Any

from packaging.specifiers import SpecifierSet

IGNORED = -100
NO_LIMIT = 2**31 - 1  # tokens; not None, which Ovis2 cannot negate when it pads on the left
MARK = "_legacy_swift3"


@dataclass(frozen=True)
class Heal:
    """One defect of a release.

    Attributes:
        id: Short name, printed.
        releases: Of ms-swift, that have the defect.
        target: ``module:Class.method`` that is replaced.
        affected: Takes the method; True if it has the defect.
        fix: Takes the method, returns its replacement.
    """

    id: str
    releases: str
    target: str
    affected: Callable[[Any], bool]
    fix: Callable[[Any], Any]


def lend_labels(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Templates whose image merge goes over the labels get ignored ones; the model does not see them.

    Also no limit of length while they merge: Ovis2 cuts there, and with it the end of the completion.
    """

    @functools.wraps(hook)
    def pre_forward_hook(self: Any, model: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        input_ids = kwargs.get("input_ids")
        if input_ids is None or kwargs.get("labels") is not None:
            return hook(self, model, args, kwargs)
        limit, self.max_length = self.max_length, NO_LIMIT
        try:
            lent = {**kwargs, "labels": input_ids.new_full(input_ids.shape, IGNORED)}
            args, made = hook(self, model, args, lent)
        finally:
            self.max_length = limit
        made.pop("labels", None)
        return args, made

    return pre_forward_hook


def has_unguarded_merge(hook: Any) -> bool:
    """True if the Ovis templates hand labels on without looking whether there are any."""
    merge = import_module("swift.llm.template.template.qwen").Ovis1_6Template._post_encode
    return "text_labels=inputs.get('labels')" in inspect.getsource(merge)


def bind_worker_facts(start: Callable[..., Any]) -> Callable[..., Any]:
    """Give transformers' ``seed_worker`` the number of workers and the rank, whoever passed it bare."""

    @functools.wraps(start)
    def __init__(self: Any, loader: Any) -> None:
        function = loader.worker_init_fn
        if function is not None and wants_worker_facts(function):
            rank = int(os.environ.get("RANK", "0"))
            loader.worker_init_fn = functools.partial(function, num_workers=loader.num_workers, rank=rank)
        start(self, loader)

    return __init__


def wants_worker_facts(function: Callable[..., Any]) -> bool:
    """True if the function cannot be called with the worker's id alone."""
    parameters = inspect.signature(function).parameters
    wanted = [parameters[name] for name in ("num_workers", "rank") if name in parameters]
    return any(parameter.default is inspect.Parameter.empty for parameter in wanted)


def seed_worker_wants_facts(start: Any) -> bool:
    """True for transformers from 4.52 on."""
    return wants_worker_facts(import_module("transformers.trainer_utils").seed_worker)


def know_new_layout(get_position_ids: Callable[..., Any]) -> Callable[..., Any]:
    """Know Qwen2-VL and Qwen2.5-VL as transformers has them from 4.52 on: all lies one level deeper.

    By the old names ``--freeze_vit`` and LoRA do not find the vision tower: it trains without a word.
    """
    keys = qwen_keys()
    keys.language_model, keys.vision_tower = ["model.language_model"], ["model.visual"]
    keys.aligner = ["model.visual.merger"]
    for family, prefix in (("qwen2_vl", "Qwen2VL"), ("qwen2_5_vl", "Qwen2_5_VL")):
        module = import_module(f"transformers.models.{family}.modeling_{family}")
        inner, outer = (getattr(module, prefix + name) for name in ("Model", "ForConditionalGeneration"))
        inner.embed_tokens = property(lambda model: model.language_model.embed_tokens)
        outer.get_rope_index = lambda model, *args, **kwargs: model.model.get_rope_index(*args, **kwargs)
    return get_position_ids


def old_layout(_: Any) -> bool:
    """True if transformers has the new layout and the host knows the old one."""
    return SpecifierSet(">=4.52").contains(version("transformers")) and "visual" in qwen_keys().vision_tower


def qwen_keys() -> Any:
    """The host's names of the modules of Qwen2-VL and Qwen2.5-VL."""
    return import_module("swift.llm.model.model_arch").MODEL_ARCH_MAPPING["qwen2_vl"]


def refuse_single_generations(post_init: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse a group of one: the deviation of one reward is NaN, and so is every gradient."""

    @functools.wraps(post_init)
    def __post_init__(self: Any) -> None:
        if self.num_generations < 2:
            raise ValueError(
                f"num_generations {self.num_generations}: an advantage needs at least 2 completions to "
                "compare; with one it is NaN, and no parameter ever changes. Use --num_generations 2 or more."
            )
        post_init(self)

    return __post_init__


def without_reentrant_under_ddp(prepare: Callable[..., Any]) -> Callable[..., Any]:
    """Take the non-reentrant kind of checkpointing under DDP, which cannot do with the other one."""

    @functools.wraps(prepare)
    def _fix_gradient_checkpointing(self: Any) -> None:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not (self.deepspeed or any(self.fsdp or ())):
            chosen = self.gradient_checkpointing_kwargs or {}
            chosen = json.loads(chosen) if isinstance(chosen, str) else chosen
            self.gradient_checkpointing_kwargs = {**chosen, "use_reentrant": False}
        prepare(self)

    return _fix_gradient_checkpointing


def seeds_by_request(infer: Callable[..., Any]) -> Callable[..., Any]:
    """Give each request of a batch a seed of its own; the ranks of a tensor-parallel group still agree."""

    @functools.wraps(infer)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        prepare, count = self._prepare_generation_config, iter(range(sys.maxsize))

        def _prepare_generation_config(request_config: Any) -> Any:
            config = prepare(request_config)
            if config.seed is not None:
                config.seed += next(count)
            return config

        self._prepare_generation_config = _prepare_generation_config
        try:
            return infer(self, *args, **kwargs)
        finally:
            del self._prepare_generation_config

    return wrapper


def check_tensor_parallel(check: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse a group that a tensor-parallel group cannot share out: its ranks would get different prompts."""

    @functools.wraps(check)
    def _check_grpo(self: Any) -> None:
        check(self)
        size = self.tensor_parallel_size if self.rlhf_type == "grpo" and self.use_vllm else 1
        for name in ("num_generations", "num_infer_workers"):
            if getattr(self, name) % size:
                raise ValueError(
                    f"{name} {getattr(self, name)} is no multiple of tensor_parallel_size {size}: the ranks "
                    "of a tensor-parallel group would generate from different prompts, and hang. Make it one."
                )

    return _check_grpo


def source(text: str, *, there: bool = True) -> Callable[[Any], bool]:
    """A look at a function: its source has this text, or has it not."""
    return lambda function: (text in inspect.getsource(function)) is there


HEALS = (
    Heal("A1-none-labels", ">=3.1.1,<3.3", "swift.llm.template.base:Template.pre_forward_hook",
         has_unguarded_merge, lend_labels),
    Heal("A4-one-generation", ">=3.5.0,<3.5.2", "swift.trainers.rlhf_arguments:GRPOConfig.__post_init__",
         source("check_num_generations", there=False), refuse_single_generations),
    Heal("A5-reentrant-ddp", "<3.6",
         "swift.trainers.arguments:SwiftArgumentsMixin._fix_gradient_checkpointing",
         source("get('use_reentrant', True)"), without_reentrant_under_ddp),
    Heal("A7-worker-seed", "<3.5", "torch.utils.data.dataloader:_MultiProcessingDataLoaderIter.__init__",
         seed_worker_wants_facts, bind_worker_facts),
    Heal("A7-qwen-layout", ">=3.4,<3.5.3",
         "swift.llm.template.template.qwen:Qwen2VLTemplate._get_position_ids", old_layout, know_new_layout),
    Heal("A9-tensor-parallel", ">=3.2,<3.5", "swift.llm.argument.rlhf_args:RLHFArguments._check_grpo",
         source("num_infer_workers"), check_tensor_parallel),
    Heal("identical-completions", ">=3.5.0,<3.5.3",
         "swift.llm.infer.infer_engine.vllm_engine:VllmEngine.infer",
         source("seed += i", there=False), seeds_by_request),
)  # fmt: skip


def apply(heal: Heal) -> str:
    """Apply one entry; returns what to say about it, nothing where it is not needed."""
    module, _, path = heal.target.partition(":")
    owner_name, _, name = path.rpartition(".")
    try:
        owner = getattr(import_module(module), owner_name)
        method = getattr(owner, name)
        if hasattr(method, MARK) or not heal.affected(method):
            return ""
    except ModuleNotFoundError as error:
        return "" if error.name == "vllm" else f"{heal.id} NOT APPLIED ({error})"
    except (ImportError, AttributeError, OSError) as error:
        return f"{heal.id} NOT APPLIED ({error})"
    fixed = heal.fix(method)
    setattr(fixed, MARK, True)
    setattr(owner, name, fixed)
    return heal.id


def apply_all() -> None:
    """Apply what this release needs, and say so in one line."""
    release = version("ms-swift")
    said = [apply(heal) for heal in HEALS if SpecifierSet(heal.releases, prereleases=True).contains(release)]
    healed = ", ".join(filter(None, said)) or "nothing"
    print(f"legacy_swift3 on ms-swift {release}: healed {healed}", file=sys.stderr)


apply_all()
