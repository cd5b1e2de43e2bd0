"""The parameters of a reward, as its function declares them: names, defaults, types, checks."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from swift_grpo_ext.errors import SettingsError, nearest


class Parameters:
    """Parameters of a reward: the keywords of its function, and the fields of those that are dataclasses."""

    def __init__(self, name: str, function: Callable[..., object]) -> None:
        self.name = name
        self.function = function

    @functools.cached_property
    def groups(self) -> dict[str, type]:
        """Arguments of the function that stand for several parameters: name and dataclass of each."""
        hints = get_type_hints(self.function)
        names = inspect.signature(self.function).parameters
        return {name: hints[name] for name in names if dataclasses.is_dataclass(hints.get(name))}

    @functools.cached_property
    def defaults(self) -> dict[str, object]:
        """Name and default of every parameter."""
        found: dict[str, object] = {}
        for p in inspect.signature(self.function).parameters.values():
            if p.name in self.groups:
                found |= {one.name: one.default for one in dataclasses.fields(self.groups[p.name])}
            elif p.kind is p.KEYWORD_ONLY:
                found[p.name] = p.default
        return found

    @functools.cached_property
    def hints(self) -> dict[str, Any]:
        """Name and type of every parameter."""
        hints = get_type_hints(self.function, include_extras=True)
        for group in self.groups.values():
            hints |= get_type_hints(group, include_extras=True)
        return {name: hints[name] for name in self.defaults}

    def packed(self, values: Mapping[str, object]) -> dict[str, Any]:
        """Parameters as the function takes them: those of a group in its dataclass."""
        if not self.groups:
            return dict(values)
        left = dict(values)
        made = {}
        for name, group in self.groups.items():
            made[name] = group(**{field: left.pop(field) for field in self._fields[name] if field in left})
        return {**left, **made}

    @functools.cached_property
    def _fields(self) -> dict[str, tuple[str, ...]]:
        groups = self.groups.items()
        return {name: tuple(one.name for one in dataclasses.fields(group)) for name, group in groups}

    @functools.cached_property
    def _adapters(self) -> dict[str, TypeAdapter[Any]]:
        return {name: TypeAdapter(hint) for name, hint in self.hints.items()}

    def checked_one(self, name: str, value: object) -> object:
        """A parameter's value in its declared type and range, else a ValueError that says what would fit."""
        try:
            return self._adapters[name].validate_python(value)
        except ValidationError as error:
            choices = [choice for choice in _choices(self.hints[name]) if isinstance(choice, str)]
            near = nearest(str(value)[:80], choices, cutoff=0.3)
            meant = f", did you mean {near!r}?" if near else ""
            raise ValueError(f"{error.errors()[0]['msg']} (got {value!r:.80}){meant}") from None

    def checked(self, values: Mapping[str, object]) -> dict[str, object]:
        """Parameters from the settings, checked."""
        checked = {}
        for name, value in values.items():
            where = f"parameter {name!r} of {self.name}"
            if name not in self.defaults:
                known = ", ".join(self.defaults) or "it has none"
                near = nearest(name, self.defaults, cutoff=0.6)
                meant = f"did you mean {near!r}? " if near else ""
                raise SettingsError("unknown parameter", where=where, fix=f"{meant}parameters: {known}")
            try:
                checked[name] = self.checked_one(name, value)
            except ValueError as error:
                raise SettingsError(str(error), where=where, fix="see the reward's page in docs/") from None
        return checked


def _choices(hint: object) -> list[object]:
    """The values that a type allows, as far as it lists them."""
    inner = get_args(hint)
    return [choice for one in inner for choice in (_choices(one) or ([] if isinstance(one, type) else [one]))]
