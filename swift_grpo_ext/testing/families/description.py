"""The description that a tiny checkpoint is made from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Tiny:
    """How a family's tiny checkpoint is made."""

    stem: str  # of transformers' classes, ``<stem>Config`` and ``<stem>ForConditionalGeneration``
    host: Mapping[str, str]  # arguments of ms-swift that a run needs: ``model_type``, ``template``
    text: Mapping[str, Any] = field(default_factory=dict)  # of the language model's config
    vision: Mapping[str, Any] = field(default_factory=dict)  # of the tower's config; empty without one
    # Fields of the config that are ids, with their token or tokens.
    ids: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    tokens: tuple[str, ...] = ()  # special tokens besides Qwen's, or all if <|endoftext|> is one
    top: Mapping[str, Any] = field(default_factory=dict)  # other fields of the config
    # From the config and the most pixels of an image, the arguments of `processors.build_processor`.
    processor: Callable[[Any, int], Mapping[str, Any]] | None = None
    chat: Mapping[str, Any] = field(default_factory=dict)  # what `processors.chat_template` takes
    stock_vocabulary: bool = False  # the special tokens have published ids, from 151643 on
    empty_files: tuple[str, ...] = ()  # that the class needs; each gets an empty dictionary of tensors
    # Name of the inner config that holds the parts, if there is one, and the fields around it.
    inside: tuple[str, Mapping[str, Any]] | None = None
    # Adds derived sizes to the fields of text and tower; returns those of the outer config.
    follow: Callable[[dict[str, Any], dict[str, Any]], Mapping[str, object]] | None = None
    max_pixels: int = 256 * 32 * 32  # of a resized image, where the processor resizes
    named: Mapping[str, str] = field(default_factory=dict)  # special tokens by the processor's names for them
