"""Reads ms-swift's own checks of its arguments from its source, and follows them on a run's values.

Nothing of ms-swift is imported or run: of each method the assignments to ``self``, the branches and what they
raise are followed, as far as plain comparisons of arguments decide them. Everything else is passed over.
"""

import ast
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from swift_grpo_ext.doctor.check import host_table
from swift_grpo_ext.doctor.check.arguments import Arguments, NotKnown
from swift_grpo_ext.doctor.check.rules.table import table
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.findings import Finding, Rule, Severity

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


def findings(run: Run, found: Sequence[Finding]) -> list[Finding]:
    """What ms-swift refuses and no rule has found, with its message."""
    seen, refused = {finding.rule for finding in found}, []
    for message in messages(run.arguments):
        rule = row_of(message)
        if rule is None or rule.id not in seen:
            known = rule is not None and rule.id != "host-refuses"
            name, fix = (rule.id, rule.cause) if rule and known else ("host-refuses", "as the message says")
            refused.append(Finding(name, Severity.ERROR, f"ms-swift refuses it: {message}", "", fix))
    return refused


def row_of(message: str) -> Rule[Run] | None:
    """The rule whose symptom a message of ms-swift is."""
    for rule in table.rules:
        for symptom in rule.symptoms:
            pattern = ".*".join(re.escape(part) for part in symptom.split("..."))
            if len(symptom) > 20 and re.search(pattern, message):
                return rule
    return None


class _Follow:
    def __init__(self, arguments: Arguments, values: dict[str, object]) -> None:
        self.arguments, self.values = arguments, values
        self.names: dict[str, Any] = {}

    def block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            try:
                self._statement(statement)
            except (_Unclear, NotKnown, TypeError):
                for node in ast.walk(statement):  # what it sets is not known any more
                    if isinstance(node, (ast.Attribute, ast.Name)) and isinstance(node.ctx, ast.Store):
                        self._assign(node, _Unclear)
                if any(isinstance(node, ast.Return) for node in ast.walk(statement)):
                    raise _Returned from None  # what follows may never be reached

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.If(test=test, body=body, orelse=orelse):
                self.block(body if self.value(test) else orelse)
            case ast.Assert(test=test, msg=message) if not self.value(test):
                raise _Raised(f"AssertionError: {self._text(message)}".rstrip(": "))
            case ast.FunctionDef(name=name):
                self.names[name] = node
            case ast.Expr(value=ast.Call(func=function, args=[])):
                inner = self.names.get(ast.unparse(function))
                self.block(inner.body if isinstance(inner, ast.FunctionDef) else [])
            case ast.Raise(exc=ast.Call(func=ast.Name(id=name), args=arguments)):
                raise _Raised(f"{name}: {self._text(arguments[0] if arguments else None)}")
            case ast.Raise():
                raise _Unclear
            case ast.Return():
                raise _Returned
            case ast.Assign(targets=[target], value=value):
                self._assign(target, self.value(value))

    def _assign(self, target: ast.expr, value: object) -> None:
        match target:
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                self.values[name] = value
            case ast.Name(id=name):
                self.names[name] = value

    def value(self, node: ast.expr | None) -> Any:
        """An expression's value."""
        found: Any = _Unclear
        match node:
            case ast.Constant(value=value):
                found = value
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if name in self.values:
                found = self.values[name]
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if name in self.arguments.values:
                found = self.arguments.get(name)
            case ast.Name(id=name):
                found = self.names.get(name, _Unclear)
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                found = list(map(self.value, items))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                found = not self.value(operand)
            case ast.BoolOp():
                found = self._either(node)
            case ast.Compare():
                found = self._compared(node)
        if found is _Unclear:
            raise _Unclear
        return found

    def _either(self, node: ast.BoolOp) -> object:
        """``and`` and ``or``: one side that decides is enough, in whichever place it stands."""
        unclear, value = False, None
        for one in node.values:
            try:
                value = self.value(one)
                if bool(value) is isinstance(node.op, ast.Or):
                    return value
            except (_Unclear, NotKnown):
                unclear = True
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

    def _text(self, node: ast.expr | None) -> str:
        """A message, with what it fills in."""
        match node:
            case ast.JoinedStr(values=parts):
                return "".join(map(self._text, parts))
            case ast.FormattedValue(value=inner, conversion=conversion):
                try:
                    value = self.value(inner)
                except (_Unclear, NotKnown):
                    return "..."
                return repr(value) if conversion == ord("r") else str(value)
            case ast.Constant(value=value):
                return str(value)
        return ""
