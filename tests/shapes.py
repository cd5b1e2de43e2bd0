"""Once this is imported, jaxtyping's hook checks shapes of functions at the top of a module or class alone.

A function inside of another is made anew with each call of that, and its checks were, too: a quarter of the
seconds of a run in this process.
"""

import ast

from jaxtyping._import_hook import JaxtypingTransformer

_visited = JaxtypingTransformer.visit_FunctionDef


def _visit(transformer: JaxtypingTransformer, node: ast.FunctionDef) -> ast.FunctionDef:
    inner = any(isinstance(parent, ast.FunctionDef) for parent in transformer._parents)
    return node if inner else _visited(transformer, node)


JaxtypingTransformer.visit_FunctionDef = _visit
