"""Examples of patterns: a comment ``# "what it matches"`` above each, which a test runs."""

import ast
import re
from pathlib import Path


def examples(module):
    """Name, value and example of every pattern of a module; None for one without."""
    source = Path(module.__file__).read_text(encoding="utf-8")
    lines = source.splitlines()
    for node in ast.parse(source).body:
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        name = node.targets[0].id
        value = getattr(module, name)
        is_pair = isinstance(value, tuple) and value and all(isinstance(part, re.Pattern) for part in value)
        if isinstance(value, re.Pattern) or is_pair:
            comment = re.match(r'# (r?)"((?:[^"\\]|\\.)*)"', lines[node.lineno - 2])
            yield name, value, comment and _written(comment[2], bool(comment[1]))


def _written(text, is_raw):
    return text if is_raw else text.replace("\\n", "\n").replace('\\"', '"')
