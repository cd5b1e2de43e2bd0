"""transformers' processors, with prompts of chat models as Jinja templates for images and videos."""

import json
from collections.abc import Mapping
from typing import Any

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
    """Jinja source of a family's template: how the turns of each role begin and end, what stands before all,
    what the system says where the row does not, what an answer begins with, and what stands in the prompt for
    each type of part, such as ``image="<image>"``.
    """
    given = {"TURNS": turns, "MEDIA": media, "START": start, "SYSTEM": system, "ANSWER": answer}
    source = _TEMPLATE
    for name, value in given.items():
        source = source.replace(f"__{name}__", json.dumps(value, ensure_ascii=False))
    return source


def build_processor(
    stem: str,
    tokenizer: object,
    image: tuple[str, Mapping[str, Any]],
    video: tuple[str, Mapping[str, Any]] | None = None,
    **options: Any,
) -> Any:
    """transformers' ``<stem>Processor`` around those of images and videos: each a stem with its options."""
    import transformers

    parts = {"ImageProcessor": ("image_processor", image), "VideoProcessor": ("video_processor", video)}
    for kind, (name, given) in parts.items():
        if given is not None:
            options[name] = getattr(transformers, given[0] + kind)(**given[1])
    return getattr(transformers, f"{stem}Processor")(tokenizer=tokenizer, **options)
