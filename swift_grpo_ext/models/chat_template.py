"""The prompt of Qwen's chat models (ChatML) as a Jinja template for images and videos."""

from __future__ import annotations

_MEDIUM = """\
{%- elif part.type == '__TYPE__' -%}
{{ '__TEXT__' }}
"""
_TEMPLATE = """\
{%- if messages[0].role != 'system' -%}
{{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}
{%- endif -%}
{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\\n' }}
{%- if message.content is string -%}
{{ message.content }}
{%- else -%}
{%- for part in message.content -%}
{%- if part.type == 'text' -%}
{{ part.text }}
__MEDIA__{%- endif -%}
{%- endfor -%}
{%- endif -%}
{{ '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\\n' }}
{%- endif -%}
"""


def chat_template(**media: str) -> str:
    """The template that transformers' processors read; one system message, every turn closed.

    Args:
        media: What stands in the prompt for each type of part, as the body of a Jinja string literal;
            ``image="<image>\\\\n"``.

    Returns:
        Jinja source.
    """
    parts = (_MEDIUM.replace("__TYPE__", kind).replace("__TEXT__", text) for kind, text in media.items())
    return _TEMPLATE.replace("__MEDIA__", "".join(parts))
