"""How answers are stated in prose: "the answer is", 答案是, 정답은; and what is said of being unsure."""

import re
from typing import TypeAlias, TypeVar

from swift_grpo_ext.rewards.reading.words import any_case

T = TypeVar("T")
# Start and end of the words that announce an answer, and what they announce.
Statement: TypeAlias = tuple[int, int, T]

# "12 (18 less 6)", "5, up from 4": what is said beside a number
_ASIDE = any_case(
    r"(?<![A-Za-z0-9_\\\]}])[(（](?![=≈~]"
    r"|[^()（）]{0,16}(?:i\.e|that is|about|or|maybe|perhaps|possibly|可能|或)\b)"
    r"(?=[^()（）]{0,200}[^\W\d_])[^()（）\n]{1,200}[)）]"
    r"|(?<=[\w%°]),? (?:(?:up|down) from|compared (?:to|with)|versus|vs\b)(?:[^.!?;\n]|\.(?=\d))*"
)
# "3\n**Explanation:** it has 3 rows": a heading behind which no answer is given
_EXPLANATION = any_case(
    r"(?<=\S)[ \t]{0,4}\n{1,4}[ \t#*_-]{0,8}(?:explanation|reasoning|reason|rationale|justification"
    r"|note|解释|理由|说明|解析|原因)"
    r"[*_]*\s?[:：\n]"
)
MOST_CORRECTIONS = 4  # of a text that are looked at, from its end
_WIDTHS = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: 0x20}

# What an answer is called: where words are set apart by spaces, and where they are not.
_SPACED = (
    "answers?|ans|solutions?|result|response|réponse|antwort|respuesta|resposta|risposta|ответ"
    "|الإجابة|الجواب|đáp án"
)
_UNSPACED = "答案|选项|结论|結論|回答|答え|正解|解答|정답|답변?|결론"
LABEL = (
    rf"(?:\b(?:{_SPACED})(?: to (?:the|this) question)?"
    r"(?: (?:here|correcte|finale?|exacte|correcta|correta|corretta|الصحيحة|الصحيح|النهائية|đúng))?[*_]{0,2}"
    r"(?: (?:is|are|would be|should be|must be|has to be|was|est|ist|lautet|es|é|è|هي|هو|là)\b"
    r"|\.?\s?(?:[:=—–→]|->|=>)|\s-\s)"
    rf"|(?:{_UNSPACED})(?:应该|应当|应)?[*_]{{0,2}}(?:[是为為选:：は은는]|就是))"
)
"""Words that announce an answer, without regard to case."""

# "the answer is"
_LABEL = any_case(LABEL)
_ANNOUNCING = re.sub(r".\?", "", f"{_SPACED}|{_UNSPACED}").split("|")
"""Every label holds one of these."""
# "not sure"
UNSURE = any_case(
    r"\b(?:not (?:\w{1,12} )?(?:sure|certain|clear)|unsure|uncertain|unclear|unknown|hard to say|ambiguous"
    r"|(?:cannot|can't|can’t|could not|couldn't|unable to|impossible to|difficult to) (?:be )?"
    r"(?:tell|say|know|determined?|decided?|see (?:if|whether))"
    r"|(?:don't|do not) know|(?:it is|it's|it’s|it seems) possible|i wonder|there(?: is|'s|’s) a chance"
    r"|maybe|perhaps|might|may be|could be|possibly"
    r"|quizás?"
    r"|tal vez|peut-être|vielleicht)\b"
    r"|不一定|不好说|[说看分]不[清出]|不确定|不確定|不清楚|不知道|无法|無法|难以|可能|也许|或许|かもしれ|おそらく|分からない|わかりません|모르겠"
)
"""Words of somebody who does not commit to an answer."""
# "wait"
CORRECTED = any_case(
    r"\b(?:wait|actually|no,|but|however|correction|rather|instead|re-?check|on second|mistake|sorry|finally"
    r"|final|therefore|so|thus|hence|let me)\b|不对|等等|更正|重新|但是|但|然而|其实|所以|因此|最终|综上|故"
)
"""Words after which a second statement takes the first one back, or concludes."""
# "B. Wait, no, it is ": a writer takes back what stands before
_TAKEN_BACK = any_case(
    r"(?:(?:\bno\W{1,4})?\b(?:wait|hold on|scratch that|correction|let me correct (?:that|this|myself))"
    r"(?:\s?[,.!:;…—–-]{1,3}\s?|\s(?=(?:no|actually)\b))"
    r"|\b(?:sorry|oops|no)\W{1,4}(?=(?:i (?:mean|meant)|actually|sorry|wait)\b))"
    r"(?:(?:actually|sorry|i mean|i meant|rather)\W{1,4}){0,3}"
    r"|\bor rather\b,?\s?|\bi take (?:that|it) back\W{1,4}|\bsorry\W{1,3}(?=\d)|,\sno\W{1,3}(?=(?-i:[B-H])\b)"
    r"|(?:\.{2,3}|[…—–])\s?no\W{1,3}(?=it\b)"
    r"|(?<=[,.;。，；\s])(?:等等|等一下|不对|更正)[,，。:：]\s?"
)


def taken_back(text: str) -> list[str]:
    """What a text says after each time that it takes something back ("wait, no"), the last first; and all."""
    ends = [mark.end() for mark in _TAKEN_BACK.finditer(text)]
    starts = [0, *(end for end in ends[-MOST_CORRECTIONS:] if end < len(text.rstrip(" .!。")))]
    return [text[start:] for start in reversed(starts)]


# "2.4 %\n\nThis is the lowest value since 2010.": a value by itself, and what is said of it
_FIRST_LINE = re.compile(r"\W{0,8}\d[\d.,]{0,24}\s?[%°\w/]{0,8}\W{0,6}\n\s*\n(?=\W{0,4}[^\W\d])")


def first_line(text: str) -> str:
    """The first line, if it is a value by itself and nothing below it announces or concludes another."""
    value = _FIRST_LINE.match(text)
    if value is None or labels(text) or CORRECTED.search(text):
        return text
    return value[0]


def fold_width(text: str) -> str:
    """Full-width letters, digits, signs and spaces as the usual ones; nothing else changes."""
    return text if text.isascii() else text.translate(_WIDTHS)


def folded(text: str) -> str:
    """The text without regard to case, character by character: places in it are places in the text."""
    plain = text.casefold()
    if len(plain) == len(text):
        return plain
    return "".join(letter.casefold() if len(letter.casefold()) == 1 else letter for letter in text)


def labels(text: str) -> list[re.Match[str]]:
    """Every place of a text that announces an answer."""
    plain = text.casefold()  # substring searches are many times faster than the pattern
    return list(_LABEL.finditer(text)) if any(word in plain for word in _ANNOUNCING) else []


def after_label(text: str) -> str:
    """What follows the last announcement of an answer, to the end of the text; empty if there is none."""
    announced = labels(text)
    rest = text[announced[-1].end() :].lstrip(" \t\r\n:：") if announced else ""
    for mark in ("**", "*", "_"):  # the label itself may be bold: "**Answer:** B"
        if rest.startswith(mark) and rest.count(mark) % 2:
            return rest[len(mark) :].strip()
    return rest.strip()


def without_asides(text: str) -> str:
    """The text without what it says beside its numbers, if a number is left: "12 (of 18)", "up from 9"."""
    rest = _ASIDE.sub(" ", text)
    return rest if re.search(r"\d", rest) else text


def without_explanation(text: str) -> str:
    """The text up to the heading of an explanation, unless an answer is announced below it."""
    heading = _EXPLANATION.search(text)
    if heading is None or labels(text[heading.start() :]):
        return text
    return text[: heading.start()]


def last_statement(statements: list[Statement[T]], text: str, contradiction: T) -> T:
    """The last statement if it agrees with the one other before it, takes it back or stands below it."""
    *earlier, (start, end, last) = sorted(statements, key=lambda statement: statement[0])
    others = [(behind, value) for _, behind, value in earlier if value != last]
    if not others or CORRECTED.search(text, others[-1][0], end):
        return last
    listed = any(value != others[-1][1] for _, value in others)  # one announcement for each option
    return contradiction if listed or "\n" not in text[others[-1][0] : start] else last
