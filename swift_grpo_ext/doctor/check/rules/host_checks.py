"""Reads ms-swift's own checks of its arguments from its source, and follows them on a run's values.

Nothing of ms-swift is imported or run: of each method the assignments to ``self``, the branches and what they
raise are followed, as far as plain comparisons of arguments decide them. Everything else is passed over.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from swift_grpo_ext.doctor.check import host_table
from swift_grpo_ext.doctor.check.arguments import Arguments, NotKnown

# Class and file of each method, in the order in which ms-swift calls them. Those that load a model, open a
# connection, make folders, or look at this machine's devices are left out.
CHECKS = (
    ("RLHFArguments", "_process_loss_type"),
    ("RLHFArguments", "_init_grpo"),
    ("RLHFArguments", "_init_max_completion_length"),
    ("RLHFArguments", "_set_default"),
    ("BaseArguments", "_init_lazy_tokenize"),
    ("TrainArgumentsMixin", "_handle_hf_removed_args"),
    ("SftArguments", "_check_padding_free"),
    ("RLHFArguments", "_check_padding_free"),
    ("RLHFArguments", "_check_sequence_parallel"),
    ("RLHFArguments", "_check_teacher"),
    ("RLHFArguments", "_check_grpo"),
    ("RLHFArguments", "_check_opd_rl"),
    ("RLHFArguments", "_check_rlsd"),
    ("RLHFArguments", "_check_sdar"),
    ("QuantizeArguments", "get_quantization_config"),
)
_MIXIN = "RLHFMegatronArgumentsMixin"
_OF_MEGATRON = ((_MIXIN, "_check_teacher"), (_MIXIN, "_init_grpo"))
_FILES = {
    "RLHFArguments": "arguments/rlhf_args.py",
    "TrainArgumentsMixin": "trainers/arguments.py",
    "SftArguments": "arguments/sft_args.py",
    "BaseArguments": "arguments/base_args/base_args.py",
    "QuantizeArguments": "arguments/base_args/quant_args.py",
    _MIXIN: "megatron/arguments/megatron_args.py",
}
_COMPARISONS: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
}


class _Unclear(Exception):
    """An expression that is more than a comparison of arguments."""


class _Raised(Exception):
    """What ms-swift raises."""


class _Returned(Exception):
    pass


@lru_cache(maxsize=8)
def _methods(owner: str) -> dict[str, ast.FunctionDef]:
    tree = ast.parse((host_table.folder() / _FILES[owner]).read_text(encoding="utf-8"))
    body = next((one.body for one in tree.body if isinstance(one, ast.ClassDef) and one.name == owner), [])
    return {one.name: one for one in body if isinstance(one, ast.FunctionDef)}


def messages(arguments: Arguments) -> Iterator[str]:
    """What ms-swift's checks raise, one message each."""
    values: dict[str, object] = {}
    for owner, name in _OF_MEGATRON if arguments.kind == host_table.MEGATRON else CHECKS:
        method = _methods(owner).get(name)
        if method is not None:
            try:
                _Follow(arguments, values).block(method.body)
            except _Raised as raised:
                yield str(raised)
            except _Returned:
                continue


class _Follow:
    def __init__(self, arguments: Arguments, values: dict[str, object]) -> None:
        self.arguments, self.values = arguments, values
        self.names: dict[str, Any] = {}

    def block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            try:
                self._statement(statement)
            except (_Unclear, NotKnown, TypeError):
                self._forget(statement)
                if any(isinstance(node, ast.Return) for node in ast.walk(statement)):
                    raise _Returned from None  # what follows may never be reached

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.If):
            self.block(node.body if self.value(node.test) else node.orelse)
        elif isinstance(node, ast.Assert) and not self.value(node.test):
            raise _Raised(f"AssertionError: {self._text(node.msg)}".rstrip(": "))
        elif isinstance(node, ast.FunctionDef):
            self.names[node.name] = node
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and not node.value.args:
            inner = self.names.get(ast.unparse(node.value.func))
            self.block(inner.body if isinstance(inner, ast.FunctionDef) else [])
        elif isinstance(node, ast.Raise):
            raise _Raised(self._raised(node.exc))
        elif isinstance(node, ast.Return):
            raise _Returned
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            self._assign(node.targets[0], self.value(node.value))

    def _assign(self, target: ast.expr, value: object) -> None:
        if (
            isinstance(target, ast.Attribute)
            and isinstance(target.value, ast.Name)
            and target.value.id == "self"
        ):
            self.values[target.attr] = value
        elif isinstance(target, ast.Name):
            self.names[target.id] = value

    def _forget(self, statement: ast.stmt) -> None:
        """What a statement that cannot be followed sets is not known any more."""
        for node in ast.walk(statement):
            if isinstance(node, (ast.Attribute, ast.Name)) and isinstance(node.ctx, ast.Store):
                self._assign(node, _Unclear)

    def value(self, node: ast.expr) -> Any:
        """An expression's value."""
        found: Any = _Unclear
        if isinstance(node, ast.Constant):
            found = node.value
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            found = self._attribute(node.attr)
        elif isinstance(node, ast.Name):
            found = self.names.get(node.id, _Unclear)
        elif isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            found = [self.value(one) for one in node.elts]
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            found = not self.value(node.operand)
        elif isinstance(node, ast.BoolOp):
            found = self._either(node)
        elif isinstance(node, ast.Compare):
            found = self._compared(node)
        if found is _Unclear:
            raise _Unclear
        return found

    def _attribute(self, name: str) -> object:
        if name in self.values:
            return self.values[name]
        if name not in self.arguments.values:
            raise _Unclear
        return self.arguments.get(name)

    def _either(self, node: ast.BoolOp) -> object:
        """``and`` and ``or``: one side that decides is enough, in whichever place it stands."""
        wanted, unclear, value = isinstance(node.op, ast.Or), False, None
        for one in node.values:
            try:
                value = self.value(one)
            except (_Unclear, NotKnown):
                unclear = True
                continue
            if bool(value) is wanted:
                return value
        if unclear:
            raise _Unclear
        return value

    def _compared(self, node: ast.Compare) -> bool:
        left = self.value(node.left)
        for how, one in zip(node.ops, node.comparators, strict=True):
            right = self.value(one)
            if not _COMPARISONS[type(how)](left, right):
                return False
            left = right
        return True

    def _raised(self, node: ast.expr | None) -> str:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return f"{node.func.id}: {self._text(node.args[0] if node.args else None)}"
        raise _Unclear

    def _text(self, node: ast.expr | None) -> str:
        """A message, with what it fills in."""
        if isinstance(node, ast.JoinedStr):
            return "".join(self._text(one) for one in node.values)
        if isinstance(node, ast.FormattedValue):
            try:
                value = self.value(node.value)
            except (_Unclear, NotKnown):
                return "..."
            return repr(value) if node.conversion == ord("r") else str(value)
        return str(node.value) if isinstance(node, ast.Constant) else ""
