"""What action spaces, data sets and languages call things: the tables of ``words.json``."""

import json
from pathlib import Path

WORDS: dict[str, dict[str, str]] = json.loads(
    Path(__file__).with_name("words.json").read_text(encoding="utf-8")
)
"""Name of a table to meaning to words, with spaces between."""


def meanings(table: str) -> dict[str, str]:
    """Word to meaning."""
    return {word: meaning for meaning, words in WORDS[table].items() for word in words.split()}
