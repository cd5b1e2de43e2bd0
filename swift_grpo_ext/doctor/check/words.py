"""What the shell does to text: fields of a word, braces; a makefile as a script."""

import re
from collections.abc import Iterable, Iterator

PLUGIN = "<swift-grpo-ext>"
"""Stands for the output of $(swift-grpo-ext path)."""

BEGIN, _END, _OPEN = "\ue000", "\ue001", "\ue002"


def unknown(text: str) -> str:
    """Text of a script whose value is not known."""
    return f"{BEGIN}{text}{_END}"


def is_known(word: str) -> bool:
    """Nothing in it comes from elsewhere."""
    return BEGIN not in word


def is_open(word: str) -> bool:
    """It may stand for any number of words, options among them."""
    return word.startswith(_OPEN)


def opened(text: str, *, marked: bool = False) -> str:
    """Text of a script, with its marks or without, that may stand for any number of words."""
    return _OPEN + (text if marked else unknown(text))


def shown(word: str) -> str:
    """As the script writes it."""
    return word.translate(dict.fromkeys(map(ord, (BEGIN, _END, _OPEN))))


def base(word: str) -> str:
    """A program's name without its folder."""
    return word.rsplit("/", 1)[-1]


_BRACES = re.compile(r"\{([^{}]*,[^{}]*|-?\d+\.\.-?\d+)\}")
MOST_WORDS = 4096


def split(text: str) -> list[str]:
    """Fields of an unquoted value; blanks at its ends part it from what stands beside it."""
    if not text.strip():
        return ["", ""] if text else [""]
    return [*[""] * text[0].isspace(), *text.split(), *[""] * text[-1].isspace()]


def braced(word: str) -> Iterator[str]:
    """``{a,b}`` and ``{1..3}`` written out, as far as `MOST_WORDS` asks."""
    match = _BRACES.search(word)
    if match is None:
        yield word
        return
    many: Iterable[object] = match[1].split(",")
    if "," not in match[1]:
        low, high = map(int, match[1].split(".."))
        many = range(low, high + 1)
    for part in many:
        yield from braced(f"{word[: match.start()]}{part}{word[match.end() :]}")


def unescaped_in_quotes(source: bytes) -> str:
    """Text between double quotes, without its backslashes."""
    text = source.decode("utf-8", "replace").replace("\\\n", "")
    return re.sub(r'\\([$`"\\])', r"\1", text)


def as_script(makefile: str) -> str:
    """A makefile's variables and recipes."""
    lines: list[str] = []
    for line in makefile.splitlines():
        line = re.sub(r"\$\((\w+)\)", r"${\1}", line)
        goes_on = bool(lines) and lines[-1].endswith("\\")
        assigned = re.fullmatch(r"(?:export\s+)?(\w+)\s*([:?]?)=\s*(.*?)\s*", line)
        if assigned and not line.startswith("\t"):
            name, how, value = assigned.groups()
            lines.append(f'{name}="{f"${{{name}:-{value}}}" if how == "?" else value}"')
        elif line.startswith("\t"):
            lines.append((line if goes_on else line.lstrip("\t@-+")).replace("$$", "$"))
        else:
            lines.append(line if goes_on else "")
    return "\n".join(lines)
