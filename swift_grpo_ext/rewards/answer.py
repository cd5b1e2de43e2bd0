r"""The answer grammar, one for all rewards.

1. The thinking part is everything up to the last ``</think>``; an opened but unclosed ``<think>`` runs to
   the end. What stands in it is never an answer.
2. In the rest, the last closed ``<answer>...</answer>`` block is the answer. Without a block the whole rest
   is; but if a block was opened and none closed (a truncated completion), there is no answer.
3. Inside the answer, rewards that compare short values look at the last ``\boxed{...}`` if there is one,
   and those that read JSON look at the last fenced block if there is one.

Everything here is linear in the length of the text: substring searches and single passes, no backtracking.
"""

from __future__ import annotations

import unicodedata

THINK = ("<think>", "</think>")
ANSWER = ("<answer>", "</answer>")
FENCE = "```"
_AROUND = " \t\r\n*_`$\"'“”‘’「」『』【】"
_COMMANDS = ("\\text{", "\\textbf{", "\\mathrm{", "\\mathbf{", "\\textit{")
MAX_ANSWER_CHARS = 32_768
"""A longer answer counts as none: no task of the catalogue needs it, and costs stay bounded."""


def after_thinking(text: str) -> str:
    """The text after the thinking part; empty if the thinking never ends."""
    opened, closed = text.rfind(THINK[0]), text.rfind(THINK[1])
    if opened > closed:
        return ""
    return text[closed + len(THINK[1]) :] if closed >= 0 else text


def last_block(text: str, tags: tuple[str, str]) -> str | None:
    """Content of the last closed block of these tags, without the tags; None if no block is closed."""
    opening, closing = tags
    end = text.rfind(closing)
    start = text.rfind(opening, 0, end) if end >= 0 else -1
    if start < 0:
        return None
    start += len(opening)
    return text[start : text.find(closing, start)]


def extract_answer(completion: str) -> str | None:
    """The answer of a completion, stripped; None if it has none (empty, unclosed, or longer than the cap)."""
    rest = after_thinking(completion)
    block = last_block(rest, ANSWER)
    if block is None and ANSWER[0] in rest:
        return None
    answer = (rest if block is None else block).strip()
    return answer if 0 < len(answer) <= MAX_ANSWER_CHARS else None


def balanced_end(text: str) -> int:
    """Index of the brace that closes a group opened just before the text, -1 if none does."""
    depth = 1
    for index, character in enumerate(text):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth == 0:
            return index
    return -1


def last_boxed(text: str) -> str | None:
    r"""Content of the last ``\boxed{...}`` with balanced braces, None if there is none."""
    _, mark, rest = text.rpartition("\\boxed{")
    end = balanced_end(rest) if mark else -1
    return rest[:end].strip() if end >= 0 else None


def last_fenced(text: str) -> str:
    """Content of the last fenced block, without its language word; the text itself if there is none."""
    end = text.rfind(FENCE)
    start = text.rfind(FENCE, 0, end) if end > 0 else -1
    if start < 0:
        return text
    body = text[start + len(FENCE) : end]
    language, newline, rest = body.partition("\n")
    return rest if newline and language.strip().isalnum() else body


def short_answer(completion: str, fold: bool = True) -> str | None:
    """The answer as a short value: unboxed, width-folded (NFKC), without Markdown emphasis around it."""
    answer = extract_answer(completion)
    return None if answer is None else normalise_short(answer, fold)


def normalise_short(text: str, fold: bool = True) -> str:
    """What `short_answer` does to the answer: no box, LaTeX command, quotes or emphasis around it.

    Gold values go through it too.

    Args:
        text: An answer.
        fold: Fold widths; not for numbers, whose raised digits and fractions would be lost.
    """
    boxed = last_boxed(text)
    bare = (text if boxed is None else boxed).strip()
    plain = unicodedata.normalize("NFKC", bare) if fold else bare
    plain = plain.strip(_AROUND)
    if plain.startswith("\\(") and plain.endswith("\\)"):
        plain = plain[2:-2].strip(_AROUND)
    for command in _COMMANDS:
        if plain.startswith(command) and plain.endswith("}"):
            plain = plain[len(command) : -1].strip(_AROUND)
    return plain
