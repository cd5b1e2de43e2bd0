"""Descriptions of families that nobody has described: from the config and what ms-swift knows of the model.

ms-swift names tower, aligner and language model by the model's class, the config the placeholder tokens.
The self-check of the first micro-batch finds errors in them.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from swift_grpo_ext.models.family import VisionFamily

_FIELD = re.compile(r"(image|img|video|vision|visual|audio|boi|eoi|boa|eoa).*token_(id|ids|index)$")
_TOKEN = re.compile(r"image|img|video|vision|audio", re.IGNORECASE)
_IMAGE = "image_token"


# Paths of modules, as ms-swift names them for ``--freeze_vit`` and its kin.
_PARTS = ("vision_tower", "aligner", "language_model")
Modules = dict[str, tuple[str, ...]]


def derive(config: Any, described: VisionFamily | None = None) -> VisionFamily | None:
    """Description derived from a config, or None; for a described family only the ids are the config's."""
    if described is not None:
        return replace(described, **_ids_of(config))
    if why_unknown(config):
        return None
    config = speaking(config)
    return VisionFamily(
        family=config.model_type,
        architecture=(getattr(config, "architectures", None) or [""])[0],
        host_model_type=config.model_type,
        host_template=config.model_type,
        **{**_ids_of(config), **(modules_of(config) or {})},
        frame="pixel_original",
    )


def speaking(config: Any) -> Any:
    """Of a model in a model (Qwen-Omni's thinker) the config of the one that reads; else itself."""
    parts = [getattr(config, name, None) for name in getattr(config, "sub_configs", None) or ()]
    return next(
        (candidate for candidate in (config, *parts) if token_of(candidate, _IMAGE) is not None), config
    )


def speaking_model(model: Any) -> Any:
    """The model of `speaking`: its module has the name of its config."""
    config = speaking(model.config)
    names = getattr(model.config, "sub_configs", None) or ()
    own = (name for name in names if getattr(model.config, name, None) is config)
    return getattr(model, next(own, "").removesuffix("_config") or "_", model)


def why_unknown(config: Any) -> str:
    """Reason why no description follows from a config; empty if one does."""
    name = getattr(config, "model_type", "")
    if getattr(config, "auto_map", None):
        return f"{name!r} is code of the checkpoint (trust_remote_code)"
    config = speaking(config)
    if token_of(config, _IMAGE) is None:
        return f"the config of {name!r} names no image token"
    modules = modules_of(config)
    if modules is None:
        return f"ms-swift names no modules of {name!r}"
    towers = len(modules["vision_tower"])
    if towers != 1:
        return f"{name!r} has {towers} towers"
    return ""


def _ids_of(config: Any) -> dict[str, Any]:
    read = {
        f"{medium}_token_id": token_of(config, f"{medium}_token") for medium in ("image", "video", "audio")
    }
    indicators = tuple(sorted(set(_media_ids(config)) - set(read.values())))
    return {**read, "indicator_token_ids": indicators}


def media_tokens(tokenizer: Any) -> tuple[int, ...]:
    """Ids of a tokenizer's special tokens that are named after a medium, such as ``</img>``."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    return tuple(
        sorted(id_ for id_, token in added.items() if token.special and _TOKEN.search(token.content))
    )


def modules_of(config: Any) -> Modules | None:
    """Where ms-swift finds tower, aligner and language model of a config's class; None if it does not say."""
    for architecture in (*(getattr(config, "architectures", None) or ()), getattr(config, "model_type", "")):
        if (modules := _modules_by_class().get(architecture)) is not None:
            return modules
    return None


@cache
def _modules_by_class() -> dict[str, Modules]:
    from swift.model import MODEL_MAPPING
    from swift.model.model_arch import MODEL_ARCH_MAPPING

    by_class: dict[str, Modules] = {}
    for meta in MODEL_MAPPING.values():
        arch = (
            MODEL_ARCH_MAPPING.get(meta.model_arch) if isinstance(meta.model_arch, str) else meta.model_arch
        )
        if not meta.is_multimodal or arch is None or not getattr(arch, "vision_tower", None):
            continue
        # Without audio parts: they have no pixels to encode or to share.
        modules = {part: tuple(p for p in getattr(arch, part) if "audio" not in p) for part in _PARTS}
        for architecture in meta.architectures or ():
            by_class.setdefault(architecture, modules)
        outer = {path.partition(".")[0] for path in modules["language_model"] if path.endswith(".lm_head")}
        if outer:  # a model in a model, whose config has a type of its own
            inside = {part: tuple(p.partition(".")[2] for p in paths) for part, paths in modules.items()}
            by_class.setdefault(f"{meta.model_type}_{outer.pop()}", inside)
    return by_class


def token_of(config: Any, name: str) -> int | None:
    """The id of a token such as ``image_token``, which configs call ``image_token_id`` or ``_index``."""
    candidates = (getattr(config, f"{name}_{end}", None) for end in ("id", "index"))
    return next((value for value in candidates if isinstance(value, int)), None)


def _media_ids(config: Any) -> Iterator[int]:
    for field, value in vars(config).items():
        if _FIELD.search(field):
            ids = value if isinstance(value, (list, tuple)) else [value]
            yield from (token for token in ids if token is not None)
