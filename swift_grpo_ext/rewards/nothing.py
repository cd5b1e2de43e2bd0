"""Answers that say that there is nothing to be found, for rows whose gold says so."""

from __future__ import annotations

import re

from swift_grpo_ext.rewards.answer import last_fenced
from swift_grpo_ext.rewards.regions import parse_regions

_EMPTY = re.compile(
    r"(?:\[\s{0,8}\]|\{\s{0,8}\}|null|none|nil|nothing|empty|absent|n/?a)\W{0,8}", re.IGNORECASE
)
_NEGATED = re.compile(
    r"\b(?:no|none|nothing|not|cannot|can['’]?t|isn['’]?t|aren['’]?t|doesn['’]?t|don['’]?t|couldn['’]?t|neither"
    r"|without|absent|unable)\b|[没无未]|不存在|不在|找不到|看不到|ありません|いません|없",
    re.IGNORECASE,
)
MAX_STATEMENT = 400
"""Characters of an answer that states an absence; a longer one is not read for it."""


def says_nothing(answer: str | None) -> bool:
    """Whether an answer says that nothing is there, and names no place.

    An answer without words is none: only an empty list, a word for nothing, or a negated sentence says so.
    """
    if not answer or len(answer) > MAX_STATEMENT:
        return False
    bare = last_fenced(answer).strip().strip("*_`\"'")
    if parse_regions(answer, "both"):
        return False
    if _EMPTY.fullmatch(bare):
        return True
    return bool(_NEGATED.search(bare)) or bool(
        re.search(r":\s{0,4}(?:\[\s{0,4}\]|null|none)", bare, re.IGNORECASE)
    )
