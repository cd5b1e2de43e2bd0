"""Yes or no: one of a list of words, alone or before a comma, a colon or a full stop.

>>> [read(text) for text in ("Yes", "no", "True", "Yes, there is a dog", "No. It is a cat", "是的", "错")]
[True, False, True, True, False, True, False]

Nothing else is one: ``sure``, ``right``, ``of course``, ``no dog``, ``not quite``, ``there is none``, ``yes
or no``; nor is a yes with a no behind it, ``Yes, but no``, ``是，不是``, or a refusal, ``No, I cannot tell``.
"""

import re

from swift_grpo_ext.rewards.contract import Unread

GRAMMAR = "yes or no (yes, no, true, false, 是, 否, 对, 错)"
YES = ("yes", "true", "yeah", "yep", "是", "是的", "对", "对的", "正确")
NO = ("no", "false", "nope", "否", "不是", "不", "错", "错误", "不对")
_WORDS = dict.fromkeys(YES, True) | dict.fromkeys(NO, False)
_FIRST = re.compile(r"([a-z]{2,5}|[\u4e00-\u9fff]{1,2})\s?(?:[,.;:。—]|!\Z|--?\s)(.*)", re.DOTALL)
# What takes it back: the other word, a doubt, a refusal.
_AGAIN = re.compile(
    r"\b(?:yes|yeah|yep)\b|\b(?:true|no|false|nope)\b(?=\s*(?:[,.;:!?]|\Z))"
    r"|(?:\A|[,;。但])\s?(?:不是|不对?|是的?|否|对的?|错误?|正确)(?=\s?(?:[,;.。!]|\Z))"
    r"|也.{0,3}[是对否]|无法|不确定|不清楚"
    r"|\b(?:maybe|not (?:really )?(?:sure|enough|clear|possible)|unclear|insufficient|depends|hard to|sorry"
    r"|refuse|unable|impossible|can(?:no|'|’| no)?t (?:answer|tell|say|view|determine|be determined))\b"
)


def read(text: str) -> bool:
    """Read a text as yes or no.

    Raises:
        Unread: It is neither.
    """
    plain = text.lower()
    if plain in _WORDS:
        return _WORDS[plain]
    first = _FIRST.match(plain)
    if first is None or first[1] not in _WORDS or _AGAIN.search(first[2]):
        raise Unread(text, GRAMMAR)
    return _WORDS[first[1]]
