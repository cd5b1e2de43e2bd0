"""Shapes are types: every tensor that a function of `group` or the trainer takes or gives has one.

Those of `group` are checked while tests run.
"""

import ast
import subprocess
import sys
from pathlib import Path

import jaxtyping
import pytest
import torch

import swift_grpo_ext
from swift_grpo_ext.group.logps import TokenQuery, score

PACKAGE = Path(swift_grpo_ext.__file__).parent
FILES = sorted(path for room in ("group", "trainer") for path in (PACKAGE / room).rglob("*.py"))


def without_shape(annotation: ast.expr) -> bool:
    """Whether an annotation names a tensor outside ``Float[Tensor, "..."]`` and its like."""
    if isinstance(annotation, ast.Subscript) and hasattr(jaxtyping, ast.unparse(annotation.value)):
        return False
    if isinstance(annotation, (ast.Name, ast.Attribute)):
        return ast.unparse(annotation) in ("Tensor", "torch.Tensor")
    return any(without_shape(part) for part in ast.iter_child_nodes(annotation))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_every_tensor_has_a_shape(path):
    bare = [
        ast.unparse(node)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if annotation is not None and without_shape(annotation)
    ]
    assert bare == []


def test_a_wrong_shape_raises_in_tests():
    query = TokenQuery(torch.zeros(3, dtype=torch.long), vocab_size=4)
    head = torch.nn.Linear(5, 4)
    assert score(torch.zeros(3, 5), head, query).shape == (3, 2)
    with pytest.raises(jaxtyping.TypeCheckError, match="hidden"):
        score(torch.zeros(1, 3, 5), head, query)


def test_a_wrong_dtype_raises_in_tests():
    with pytest.raises(jaxtyping.TypeCheckError, match="targets"):
        TokenQuery(torch.zeros(3), vocab_size=4)


def test_nothing_is_checked_in_a_run():
    code = "import inspect, swift_grpo_ext.group.logps as logps; print(inspect.unwrap(logps.score) is logps.score)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "True"
