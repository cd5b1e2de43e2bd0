r"""The answer grammar, one for all rewards, in linear time.

1. The thinking part (`THINKING`) is everything up to its last closing mark; one not closed runs to the
   end. What stands in it is never an answer.
2. In the rest, the last closed block of `BLOCKS` is the answer; without a block the whole rest is; but if a
   block was opened and none closed (a truncated completion), there is no answer.
3. What only wraps an answer is no part of it: ``\boxed{...}``, a code fence, bold, quotes, dollar signs, a
   label such as "Answer:", JSON with the key ``answer``. `readings` gives the answer with and without it.
"""

import json
import re
import unicodedata
from collections.abc import Iterable

from swift_grpo_ext.rewards.reading.json_text import decoded
from swift_grpo_ext.rewards.reading.statement import (
    after_label,
    fold_width,
    folded,
    without_explanation,
)
from swift_grpo_ext.rewards.reading.words import ANSWERS, DIALECTS, DOUBTS, WRITING

ANSWER = ("<answer>", "</answer>")
THINKING = tuple(DIALECTS.thinking.items())
BLOCKS = tuple(DIALECTS.answers.items())
FENCE = "```"
MAX_SHORT_CHARS = 4_000  # of a longer answer, a short value stands at the start or at the end
MAX_LEAD = 120  # characters of a sentence before what it says
MAX_SENTENCE = 800  # characters of a sentence in which what is marked is looked for
MAX_ANSWER_CHARS = 32_768  # a longer answer counts as none: no task needs it, and costs stay bounded

# "<|im_end|>"
_END = re.compile(rf"(?:\s{{0,9}}(?:{'|'.join(map(re.escape, DIALECTS.ends))}))+\Z")
_INVISIBLE = str.maketrans("", "", "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\u2061\u2062\u2063\u2064\ufeff")
# r"\boxed{"
_BOX = re.compile(r"\\(?:boxed|fbox)\s{0,2}\{")
KEYS = DIALECTS.keys
# "<count>6</count>"
_ELEMENT = re.compile(r"<(\w{1,24})>([^<>]*)</\1>")
# "**12**"
_MARKED = re.compile(r"\*\*([^*\n]{1,400})\*\*|[\"“「『]([^\"“”「」『』\n]{1,400})[\"”」』]")
_ROUNDS = 5


def after_thinking(text: str) -> str:
    """The text after the thinking part; empty if the thinking never ends."""
    plain = folded(text)
    opened, _ = _last_mark(plain, DIALECTS.thinking)
    closed, length = _last_mark(plain, DIALECTS.thinking.values())
    if opened > closed:
        return ""
    return text[closed + length :] if closed >= 0 else text


def _last_mark(text: str, marks: Iterable[str]) -> tuple[int, int]:
    """Where the last of these marks starts, and its length; -1 if there is none."""
    return max((text.rfind(mark), len(mark)) for mark in marks)


def last_block(text: str, tags: tuple[str, str]) -> str | None:
    """Content of the last closed block of these tags, without the tags; None if no block is closed."""
    opening, closing = tags
    plain = folded(text)
    start = plain.rfind(opening, 0, max(0, plain.rfind(closing)))
    if start < 0:
        return None
    start += len(opening)
    return text[start : plain.find(closing, start)]


def extract_answer(completion: str) -> str | None:
    """The answer of a completion, stripped; None if it has none (empty, unclosed, or longer than the cap)."""
    answer = after_thinking(completion)
    plain = answer.casefold()
    for tags in BLOCKS:
        if tags[0] in plain:
            if (block := last_block(answer, tags)) is None:
                return None
            answer = block
    answer = ANSWERS.struck.sub("", _END.sub("", answer.strip()[-2 * MAX_ANSWER_CHARS :])).strip()
    return answer if 0 < len(answer) <= MAX_ANSWER_CHARS else None


def balanced_end(text: str) -> int:
    """Index of the brace that closes a group opened just before the text, -1 if none does."""
    depth = 1
    for brace in re.finditer(r"[{}]", text):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.start()
    return -1


def last_boxed(text: str) -> str | None:
    r"""Content of the last ``\boxed{...}`` with balanced braces, None if there is none."""
    ends = [mark.end() for mark in _BOX.finditer(text)]
    rest = text[ends[-1] :] if ends else ""
    end = balanced_end(rest)
    return rest[:end].strip() if end >= 0 else None


def all_boxed(text: str) -> list[str]:
    r"""Contents of every outermost ``\boxed{...}`` with balanced braces, in order, at most 64."""
    boxes: list[str] = []
    end = 0
    for mark in _BOX.finditer(text):
        if mark.start() >= end:
            rest = text[mark.end() :]
            length = balanced_end(rest)
            if length < 0 or len(boxes) == 64:
                break
            boxes.append(rest[:length].strip())
            end = mark.end() + length
    return boxes


def boxed_together(text: str, between: re.Pattern[str] = ANSWERS.between_boxes) -> list[str]:
    """The contents of the boxes that end a text one beside the other; empty if it is only one."""
    run: list[str] = []
    for box in reversed(all_boxed(text)):
        before, _, text = text.rpartition(f"\\boxed{{{box}}}")
        if run and not between.match(text):
            break
        run = [box, *run]
        text = before
    return run if len(run) > 1 else []


def last_fenced(text: str) -> str:
    """Content of the last fenced block, without its language word; the text itself if there is none."""
    end = text.rfind(FENCE)
    start = text.rfind(FENCE, 0, end) if end > 0 else -1
    if start < 0:
        return text
    body = text[start + len(FENCE) : end]
    language, newline, rest = body.partition("\n")
    return rest if newline and language.strip().replace("_", "").isalnum() else body


def unwrapped(text: str) -> str:
    """The text without what encloses all of it: bold, quotes, dollars, a box, a fence, ``> `` before it."""
    for _ in range(_ROUNDS):
        before = text
        text = _without_pair(text.strip())
        if text == before:
            break
    return text


def _without_pair(text: str) -> str:
    if text.startswith(FENCE) and text.endswith(FENCE) and text.count(FENCE) == 2:
        return last_fenced(text)
    if text.startswith("> ") and not text[2:3].isdigit():  # "> 5" is a bound
        return "\n".join(line.removeprefix(">").strip() for line in text.splitlines())
    if (command := ANSWERS.command.match(text) or _BOX.match(text)) and text.endswith("}"):
        inner = text[command.end() :]
        return inner[:-1] if balanced_end(inner) == len(inner) - 1 else text
    if element := _ELEMENT.fullmatch(text):
        return element[2]
    ended = text[:-1] if text.endswith((".", "。")) else text  # **B**.
    for opening, closing in WRITING.wrapping.items():
        if len(ended) >= len(opening + closing) and ended.startswith(opening) and ended.endswith(closing):
            inner = ended[len(opening) : -len(closing)]
            return text if opening in inner or closing in inner else inner
    return text


def readings(completion: str, gold: str = "") -> list[str]:
    """The answer as it stands and without wrapping, of which the best counts; but as the gold is wrapped."""
    if (answer := extract_answer(completion)) is None:
        return []
    fenced = answer if FENCE in gold else last_fenced(answer)
    body = without_explanation(ANSWERS.preamble.sub("", fenced))
    parts = [fenced, body, last_boxed(body), after_label(body) or None, json_value(body)]
    if "\n" not in body:
        leads = (
            [cue.end() for cue in ANSWERS.led_in.finditer(body[:MAX_LEAD])]
            if ANSWERS.sentence.match(body)
            else []
        )
        parts += [body[lead:] for lead in leads if not ANSWERS.left_open.search(body[:lead])]
        marked = _MARKED.findall(body[:MAX_SENTENCE])
        parts += ["".join(mark) for mark in marked] if len(marked) == 1 else []
    texts = [fenced, body.replace("**", ""), *(unwrapped(part) for part in parts if isinstance(part, str))]
    if not gold.endswith((".", "。")):
        texts += [text[:-1] for text in texts if text.endswith((".", "。"))]
        texts += [ANSWERS.last_word.sub("", text) for text in texts]
    return list(dict.fromkeys(map(fold_width, texts)))


def json_value(text: str) -> object:
    """The answer in JSON: the value of a key such as ``answer``, a list's only item; None if it is none."""
    text = last_fenced(text).strip()
    if not (text.startswith(("{", "[")) and text.endswith(("}", "]"))):
        return None
    value = next(iter(decoded(text, json.loads)), None)
    if isinstance(value, dict):
        plain = {str(key).casefold(): item for key, item in value.items()}
        keys = [key for key in KEYS if key in plain]
        value = plain[keys[0]] if keys else next(iter(plain.values())) if len(plain) == 1 else None
    value = value[0] if isinstance(value, list) and len(value) == 1 else value
    return value if isinstance(value, (str, int, float, list)) else None


def short_answer(completion: str, fold: bool = True) -> str | None:
    """The answer as a short value: unboxed, width-folded (NFKC), without Markdown emphasis around it."""
    answer = extract_answer(completion)
    return None if answer is None or DOUBTS.request.search(answer) else normalise_short(visible(answer), fold)


def visible(text: str) -> str:
    """The text without letters that have no width: a number that they hide in is the whole of its digits."""
    return text if text.isascii() else text.translate(_INVISIBLE)


def ends_of(text: str) -> str:
    """The start and the end of a long text, which state a short value if anything does."""
    if len(text) <= MAX_SHORT_CHARS:
        return text
    return f"{text[: MAX_SHORT_CHARS // 6]}\n\n{text[-MAX_SHORT_CHARS * 5 // 6 :]}"


def normalise_short(text: str, fold: bool = True) -> str:
    """A short value without what is around it; not folded if its raised digits and fractions matter."""
    boxed = last_boxed(text) if "\\" in text else None
    bare = text if boxed is None else ", ".join(boxed_together(text)) or boxed
    if (value := json_value(bare)) is not None:
        bare = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    bare = ends_of(without_explanation(bare))
    plain = unicodedata.normalize("NFKC", bare) if fold else bare
    return unwrapped(unwrapped(plain).strip(" \t\r\n*_`$\"'“”‘’「」『』【】"))
