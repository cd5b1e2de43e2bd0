"""transformers' processors, with prompts of chat models as Jinja templates for images and videos."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Turns = Mapping[str, tuple[str, str]]  # by role, what stands before and behind what is said
CHATML: Turns = {
    role: (f"<|im_start|>{role}\n", "<|im_end|>\n") for role in ("system", "user", "assistant", "tool")
}
SYSTEM = "You are a helpful assistant."
NO_THOUGHT = "<think>\n\n</think>\n\n"
_TEMPLATE = """\
{%- set turns = __TURNS__ -%}
{%- set media = __MEDIA__ -%}
{{ __START__ }}
{%- if __SYSTEM__ and messages[0].role != 'system' -%}
{{ turns.system[0] + __SYSTEM__ + turns.system[1] }}
{%- endif -%}
{%- for message in messages -%}
{{ turns[message.role][0] }}
{%- if message.content is string -%}
{{ message.content }}
{%- else -%}
{%- for part in message.content -%}
{{ part.text if part.type == 'text' else media[part.type] }}
{%- endfor -%}
{%- endif -%}
{{ turns[message.role][1] }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ turns.assistant[0] + __ANSWER__ }}
{%- endif -%}
"""


def chat_template(
    *, turns: Turns = CHATML, start: str = "", system: str = SYSTEM, answer: str = "", **media: str
) -> str:
    """Jinja source of a family's template; ``media`` are what stands for each, as ``image="<image>"``."""
    values = {"TURNS": turns, "MEDIA": media, "START": start, "SYSTEM": system, "ANSWER": answer}
    source = _TEMPLATE
    for name, value in values.items():
        source = source.replace(f"__{name}__", json.dumps(value, ensure_ascii=False))
    return source


_KINDS = {
    "image": ("image_processor", "ImageProcessor"),
    "video": ("video_processor", "VideoProcessor"),
    "sound": ("feature_extractor", "FeatureExtractor"),
}


def build_processor(
    tokenizer: PreTrainedTokenizerBase, usual: str, chat: Mapping[str, Any], **given: Any
) -> Any:
    """transformers' ``<usual>Processor``, or that of a ``stem`` in ``given``, around those of ``image``,
    ``video`` and ``sound`` there: each a stem with its options. ``chat`` is what `chat_template` takes.
    """
    import transformers

    for medium, (name, kind) in _KINDS.items():
        if medium in given:
            of, options = given.pop(medium)
            given[name] = getattr(transformers, of + kind)(**options)
    made = getattr(transformers, given.pop("stem", usual) + "Processor")
    return made(tokenizer=tokenizer, chat_template=chat_template(**chat), **given)
