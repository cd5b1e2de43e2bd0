r"""Where an answer stands. A completion answers in one place, the first of these that it has:

1. The last ``<answer>...</answer>``, or the block of the model's family, such as ``<|begin_of_box|>``. One
   that is never closed reaches to the end.
2. The last ``\boxed{...}``.
3. For boxes, points and actions: the last tool call, the last fence, or the numbers in brackets of the last
   line, where the text is not short.
4. What the last line gives as the answer, else a first paragraph of one line: ``Answer: X``, ``The answer is
   X``, ``答案：X``. For an option also a last line such as ``(B) a dog``, where no other line begins with a
   letter; for a number what the last of several lines ends in, behind ``is`` or ``=``.
5. All of it, if that is short: 12 words. Yes or no before a comma, and an option's letter, may begin a longer
   text; transcripts, tables and JSON may be of any length.

A thought does not count: what stands in ``<think>...</think>``, or another family's marks, is left out first,
and a thought that is never closed reaches to the end. What only wraps an answer is not part of it: a fence,
bold, quotes, dollar signs, ``\text{}``, a full stop. Full-width digits, letters and brackets are read as the
usual ones, but for transcripts, tables, JSON and tool calls, which stay as they are.

>>> answer_of("<think>3 or 4?</think>I count them: <answer>**4**.</answer>")
'4'
>>> answer_of(r"So the total is \boxed{4}.")
'4'
>>> answer_of("One is hidden behind the others, and that makes five of them.\nThe answer is 5.")
'5'
>>> answer_of("答案：是。")
'是'
"""

import re
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Literal, TypeAlias, TypeVar

from swift_grpo_ext.rewards.contract import Columns, Unread, Unscorable, as_gold, gold_value
from swift_grpo_ext.rewards.json_text import Json, decoded, strict

_T = TypeVar("_T")

# short: a short value; figure: a number or formula; located: a place on the image or an action, also in a
# call or a fence; leading: a value that may begin a longer text; several: one value or several; long: a long
# text; fenced: the text in its last fence.
Kind: TypeAlias = Literal["short", "figure", "located", "leading", "several", "long", "fenced"]

THOUGHTS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
    "<seed:think>": "</seed:think>",
    "<mm:think>": "</mm:think>",
    "<think:opensource>": "</think:opensource>",
    "[think]": "[/think]",
    "◁think▷": "◁/think▷",
    "<|begin_of_thought|>": "<|end_of_thought|>",
    "<|open|>think<|sep|>": "<|close|>think<|sep|>",
    "<|channel>thought": "<channel|>",
    "<|channel|>analysis<|message|>": "<|channel|>final<|message|>",
}
BLOCKS = {
    "<answer>": "</answer>",
    "<final_answer>": "</final_answer>",
    "<conclusion>": "</conclusion>",
    "<solution>": "</solution>",
    "<output>": "</output>",
    "<|open|>response<|sep|>": "<|close|>response<|sep|>",
    "<|begin_of_solution|>": "<|end_of_solution|>",
    "<|begin_of_box|>": "<|end_of_box|>",
}
ENDS = (
    "<|im_end|>", "<|endoftext|>", "</s>", "<|eot_id|>", "<end_of_turn>", "<eos>", "<|return|>", "<|end|>",
    "<turn|>", "<|eom_id|>", "<|user|>", "<|observation|>",
)  # fmt: skip
FENCE = "```"
MAX_READ = 40_000  # characters at the end of what follows the thought that are looked at
MAX_ANSWER_CHARS = 32_768  # a longer answer counts as none: no task needs it, and costs stay bounded
MAX_WORDS = 12
MAX_SHORT = 160  # characters of a short answer
MAX_PLACES = 2_000  # characters at the end of a text in which numbers in brackets are looked for
MAX_LINE = 400  # characters at the end of a line that may give the answer

_THOUGHT = re.compile("|".join(map(re.escape, (*THOUGHTS, *THOUGHTS.values()))))
_BLOCK = re.compile("|".join(map(re.escape, BLOCKS)))
_BOX = re.compile(r"\\(?:boxed|fbox)\s{0,2}\{")
_BRACE = re.compile(r"[{}]")
_FENCED = re.compile(r"```[\w+-]{0,16}[ \t]*\n?(.*?)(?:```\w{0,8}|\Z)", re.DOTALL)
# A call whose name stands in its mark is kept with the mark: GLM's, Kimi's.
_TOOL = re.compile(
    r"((?<=<tool_call>)\s*[^\s\w].*?|<tool_call>\s{0,4}\w.*?|<\|tool_call_begin\|>.*?)"
    r"(?:</tool_call|<\|tool_call_end\|>|\Z)",
    re.DOTALL,
)
_ACTION = re.compile(r"(?:\A|\n)\s{0,4}(?:Action|动作)\s?[:：]")
_BRACKETED = re.compile(r"(?<![\w])[\[(]{1,2}[-\d\s,.;]{3,80}[\])]{1,2}")
_LABEL = re.compile(
    r"(?:\A|[.!?:;,。][\"”')]? )\s{0,4}(?:(?:so|thus|hence|therefore|and|then|finally|this means that),? )?"
    r"(?:(?:the|my) (?:(?:correct|final|right|best) )?(?:answer|option|choice)(?: letter)?"
    r"(?: to [^.:\n]{1,60})? is\b|(?:(?:the|my) )?(?:(?:final|correct) )?answer\s?(?:is\s?)?[:：])\s?[:：]?"
    r"|答案\s?(?:是|为|:|：)\s?[:：]?|【答案】",
    re.IGNORECASE,
)
_OPTION = re.compile(r"^[ *(\[]{0,4}[A-Z][).:]", re.MULTILINE)
_ENDS_IN = re.compile(r"\b(?:is|are|equals)\s|=")
_COLON = re.compile(r":\s{0,8}\n\s{0,8}")
_MARKUP = re.compile(r"\*\*|__|^#{1,6} ")
_TEXT = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|boldsymbol|bf)\s?\{([^{}]{0,400})\}")
_PAIRS = {
    "**": "**", "*": "*", "__": "__", "`": "`", "$$": "$$", "$": "$", '"': '"', "'": "'",
    "“": "”", "‘": "’", "「": "」", r"\(": r"\)", r"\[": r"\]",
}  # fmt: skip
# Full-width signs become the usual ones, a minus a hyphen; characters without a width are dropped.
_WIDTH: dict[int, int | None] = dict.fromkeys(map(ord, "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"))
_WIDTH.update({code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)})
_WIDTH.update({0x3000: 32, 0xA0: 32, 0x2212: 45, 0x3010: 91, 0x3011: 93})


def answer_of(completion: str, kind: Kind = "short") -> str:
    """The text in the answer's place, without what wraps it.

    Raises:
        Unread: The completion has no such place, or nothing stands in it.
    """
    text = _within(behind_thought(completion), kind)
    if len(text) > MAX_ANSWER_CHARS:
        raise Unread(f"an answer of over {MAX_ANSWER_CHARS} characters, which is more than is read")
    if kind in ("long", "fenced"):
        text = last_fenced(text) if kind == "fenced" else unfenced(text).strip()
    else:
        text = unwrapped(narrow(text))
        text = text if kind == "located" else _in_json(text)
    if not text:
        raise Unread("nothing stands where the answer does")
    return text


def narrow(text: str) -> str:
    """A text with full-width digits, letters and signs as the usual ones."""
    return text if text.isascii() else text.translate(_WIDTH)


def behind_thought(completion: str) -> str:
    """The text behind the thought, without marks of its end.

    Raises:
        Unread: The thought is never closed.
    """
    mark = _last(_THOUGHT, _lower(completion))
    if mark and mark[0] in THOUGHTS:
        raise Unread(f"the thought is never closed, it ends in {completion[-60:]!r}")
    text = completion[mark.end() if mark else 0 :][-MAX_READ:]
    text = text.strip().removeprefix("<s>").lstrip()
    while text.endswith(ENDS):
        text = text.removesuffix(next(filter(text.endswith, ENDS))).rstrip()
    return text


def _lower(text: str) -> str:
    """In lower case, with every letter where it was: some become two."""
    plain = text.lower()
    return plain if len(plain) == len(text) else text


def _last(marks: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The last of these marks in a text."""
    return next(iter(deque(marks.finditer(text), maxlen=1)), None)


def last_block(text: str) -> str | None:
    """The text of the last answer block, to the end where nothing closes it; None without a block."""
    if "<" not in text:
        return None
    plain = _lower(text)
    mark = _last(_BLOCK, plain)
    if mark is None:
        return None
    end = plain.find(BLOCKS[mark[0]], mark.end())
    return text[mark.end() : end if end >= 0 else len(text)].strip()


def _within(text: str, kind: Kind) -> str:
    block = last_block(text)
    inside = text if block is None else block
    if kind in ("long", "fenced"):
        return inside
    if kind == "leading":
        inside = _MARKUP.sub("", inside)
    if "\\" in inside and (boxed := boxes(inside, last_line=block is None)):
        return ", ".join(dict.fromkeys(boxed)) if kind == "several" else _only(boxed)
    if block is not None:
        return _behind_label(inside)
    if kind == "located" and (place := _located(inside)):
        return place
    if (line := _said(inside, kind)) is not None:
        return line
    if kind != "leading" and not _is_short(inside):
        nowhere = f"no <answer>, no \\boxed{{}}, no last line 'Answer: ...', and over {MAX_WORDS} words"
        raise Unread(f"{nowhere}, which end in {inside[-60:]!r}")
    return inside


def _behind_label(text: str) -> str:
    """The text behind a label such as ``Answer:`` that it begins with; else the text."""
    label = _LABEL.match(text)
    return text[label.end() :] if label else text


def _is_short(text: str) -> bool:
    return len(text) <= MAX_SHORT and len(text.split()) <= MAX_WORDS


def _said(text: str, kind: Kind) -> str | None:
    """The answer that the last line, or a first paragraph of one line, gives; None if neither does."""
    tail = _MARKUP.sub("", text[-MAX_LINE:])
    _, several, line = tail.rpartition("\n")
    for stated in (line, _COLON.sub(": ", tail).rpartition("\n")[2]):  # "The answer is:" may be a line before
        if match := _LABEL.search(stated):
            return stated[match.end() :]
    if kind == "leading" and several and _OPTION.match(line) and len(_OPTION.findall(text)) == 1:
        return line
    if first := _LABEL.match(text):
        line_of_its_own, _, rest = text[first.end() :].partition("\n")
        if kind == "leading" or rest.startswith("\n"):
            return line_of_its_own
    ends = list(_ENDS_IN.finditer(line)) if several and kind in ("figure", "several") else []
    return line[ends[-1].end() :] if ends else None


def boxes(text: str, last_line: bool = True) -> list[str]:
    r"""The contents of each ``\boxed{}`` in a text, or in the last line that has one."""
    marks = list(_BOX.finditer(text))
    line = text.rfind("\n", 0, marks[-1].start()) if marks and last_line else -1
    starts = [mark.end() for mark in marks[-8:] if mark.start() > line]
    return [text[start : closed_at(text, start)].strip() for start in starts]


def closed_at(text: str, start: int = 0) -> int | None:
    """Index of the brace that closes the one open at `start`; None if nothing closes it."""
    depth = 1
    for brace in _BRACE.finditer(text, start):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return brace.start()
    return None


def _only(values: list[str]) -> str:
    """The one value that stands there.

    Raises:
        Unread: There are several.
    """
    if len(set(values)) > 1:
        raise Unread(f"several answers, {' and '.join(repr(value[:40]) for value in values[:3])}")
    return values[0]


def _located(text: str) -> str:
    """The last tool call, action, fence, or the brackets of the last line that has numbers in them."""
    if text[:1] + text[-1:] in ("[]", "{}"):
        return text
    for pattern in (_TOOL, _FENCED):
        if matches := pattern.findall(text):
            return str(matches[-1])
    if acts := list(_ACTION.finditer(text)):
        return text[acts[-1].end() :]
    places = [] if _is_short(text) else _BRACKETED.findall(text[-MAX_PLACES:].rpartition("\n")[2])
    return ", ".join(places)


def _in_json(text: str) -> str:
    """The one short value that a JSON object has under ``answer``; else the text."""
    fields = decoded(text, strict) if text.startswith("{") else None
    value = fields.get("answer") if isinstance(fields, dict) else None
    return unwrapped(str(value)) if isinstance(value, (str, int, float)) else text


def last_fenced(text: str) -> str:
    """The text in the last fence of a text; the text itself without a fence."""
    return str((_FENCED.findall(text) or [text])[-1]).strip()


def unfenced(text: str) -> str:
    """The text in a fence around all of a text; the text itself without one."""
    if not text.startswith(FENCE):
        return text
    fenced = _FENCED.fullmatch(text)
    return text if fenced is None else fenced[1].strip()


def unwrapped(text: str) -> str:
    """The text without a fence, bold, quotes, dollar signs around all of it, and without its full stop."""
    text = unfenced(text.strip())
    if "\\" in text:
        text = _TEXT.sub(r"\1", text).replace("\\%", "%").strip()
    while True:
        if text.endswith((".", "。")) and not text.endswith(".."):
            text = text[:-1].rstrip()
        opening = next((mark for mark in (text[:2], text[:1]) if mark in _PAIRS), "")
        closing = _PAIRS.get(opening, "")
        inner = text[len(opening) : -len(closing)] if text.endswith(closing) else ""
        if not inner or opening in inner or closing in inner:
            return text
        text = inner.strip()


def bare_gold(text: str) -> str:
    r"""A gold without what wraps it: what follows ``####``, or stands in the last ``\boxed{}``."""
    text = text.rpartition("####")[2].strip()[: MAX_ANSWER_CHARS + 1]
    text = ", ".join(dict.fromkeys(boxes(text))) or text
    return unwrapped(_behind_label(narrow(text)))


def read_gold(columns: Columns, names: tuple[str, ...], read: Callable[[str], _T]) -> _T:
    """The gold of a row, read as answers are.

    Raises:
        NoGold: Every one of the columns is missing or empty.
        Unscorable: The gold is not a value of this kind.
    """
    value: _T = _read_once(read, gold_string(columns, names))
    return value


@lru_cache(maxsize=1024)
def _read_once(read: Callable[[str], _T], gold: str) -> _T:
    """The value of a gold, which is the same for all completions of a group."""
    return as_gold(read, bare_gold(gold))


def gold_string(columns: Columns, names: tuple[str, ...]) -> str:
    """The gold as text: numbers are written out, a list of one is its item, anything else is unscorable.

    Raises:
        NoGold: Every one of the columns is missing or empty.
        Unscorable: The gold is not one text or number, or longer than an answer may be.
    """
    gold = gold_value(columns, names)
    items = gold if isinstance(gold, list) else [gold]
    if len(items) == 1 and is_text(items[0]):
        return short_enough(str(items[0]))
    raise Unscorable(f"gold {gold!r:.80} is not text")


def short_enough(gold: str) -> str:
    """The gold, if an answer may be as long; no answer could reach a longer one.

    Raises:
        Unscorable: The gold is longer than that.
    """
    if len(gold) > MAX_ANSWER_CHARS:
        raise Unscorable(f"gold of {len(gold)} characters, an answer has at most {MAX_ANSWER_CHARS}")
    return gold


def is_text(value: Json) -> bool:
    """True for a text, or a number, which is written out."""
    return isinstance(value, (str, int, float)) and not isinstance(value, bool)
