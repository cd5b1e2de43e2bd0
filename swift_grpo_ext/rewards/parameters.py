"""The parameters of a reward, as its function declares them: names, defaults, types, checks."""

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from swift_grpo_ext.errors import SettingsError, nearest


class Parameters:
    """Parameters of a reward: the keywords of its function, and the fields of those that are dataclasses."""

    def __init__(self, name: str, function: Callable[..., object]) -> None:
        self.name = name
        self.groups: dict[str, Any] = {}  # arguments that stand for several parameters: name and dataclass
        self.defaults: dict[str, object] = {}  # of every parameter
        self.hints: dict[str, Any] = {}  # its type
        hints = get_type_hints(function, include_extras=True)
        for p in inspect.signature(function).parameters.values():
            if dataclasses.is_dataclass(group := hints.get(p.name)):
                self.groups[p.name] = group
                self.defaults |= {one.name: one.default for one in dataclasses.fields(group)}
                self.hints |= get_type_hints(group, include_extras=True)
            elif p.kind is p.KEYWORD_ONLY:
                self.defaults[p.name], self.hints[p.name] = p.default, hints[p.name]
        self._adapters = {name: TypeAdapter(hint) for name, hint in self.hints.items()}

    def packed(self, values: Mapping[str, object]) -> dict[str, Any]:
        """Parameters as the function takes them: those of a group in its dataclass."""
        left = dict(values)
        for name, group in self.groups.items():
            own = {one.name: left.pop(one.name) for one in dataclasses.fields(group) if one.name in left}
            left[name] = group(**own)
        return left

    def checked_one(self, name: str, value: object) -> object:
        """A parameter's value in its declared type and range, else a ValueError that says what would fit."""
        try:
            return self._adapters[name].validate_python(value)
        except ValidationError as error:
            what = error.errors()[0]["msg"]
            near = nearest(str(value)[:80], re.findall(r"'(\w+)'", what), cutoff=0.3)
            meant = f", did you mean {near!r}?" if near else ""
            raise ValueError(f"{what} (got {value!r:.80}){meant}") from None

    def checked(self, values: Mapping[str, object]) -> dict[str, object]:
        """Parameters from the settings, checked."""
        checked = {}
        for name, value in values.items():
            where = f"parameter {name!r} of {self.name}"
            if name not in self.defaults:
                near = nearest(name, self.defaults, cutoff=0.6)
                fix = f"did you mean {near!r}? " * bool(near)
                fix += f"parameters: {', '.join(self.defaults) or 'it has none'}"
                raise SettingsError("unknown parameter", where=where, fix=fix)
            try:
                checked[name] = self.checked_one(name, value)
            except ValueError as error:
                raise SettingsError(str(error), where=where, fix="see the reward's page in docs/") from None
        return checked
