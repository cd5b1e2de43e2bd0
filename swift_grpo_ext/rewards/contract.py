"""The contract of a reward: a pure function of one completion and its row, with a range and a spec card."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar, get_type_hints

from pydantic import ConfigDict, ValidationError, create_model

from swift_grpo_ext.errors import RewardError, SettingsError, nearest
from swift_grpo_ext.rewards.json_text import Json, decoded, strict

_T = TypeVar("_T")
Completion: TypeAlias = str | Sequence[Mapping[str, Any]] | Mapping[str, Any]
"""The model's output: a text, a message, or messages of which it is the last."""


def last_question(messages: Json) -> str:
    """Text of the last user turn in a column ``messages``, a text or typed parts; "" without one."""
    turns = messages if isinstance(messages, (list, tuple)) else ()
    by_user = [turn for turn in turns if isinstance(turn, Mapping) and turn.get("role") == "user"]
    return _text_of(by_user[-1].get("content")) if by_user else ""


def completion_text(completion: Completion) -> str:
    """The text of a completion: a text, a message, or the last one of a list; empty for anything else."""
    last = completion[-1] if isinstance(completion, (list, tuple)) and completion else completion
    return _text_of(last.get("content") if isinstance(last, Mapping) else completion)


def _text_of(content: Json) -> str:
    """A content as text: a text, or a list of typed parts."""
    if isinstance(content, str):
        return content
    listed = content if isinstance(content, (list, tuple)) else ()
    texts = [part.get("text") for part in listed if isinstance(part, Mapping)]
    return "\n".join(text for text in texts if isinstance(text, str))


Score: TypeAlias = float | None  # in the reward's declared range; None: it cannot score this row
Columns: TypeAlias = Mapping[str, Any]  # one row of the dataset, as ms-swift hands it to reward functions
RewardFunction: TypeAlias = Callable[..., Any]  # of the catalogue, of ms-swift or of a plugin file
# Where a reward runs: in the caller (linear time), in a child process that can be killed, or awaited.
Cost: TypeAlias = Literal["inline", "process", "async"]


def finished(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """The result of a coroutine that waits for nothing, even inside a running event loop.

    Raises:
        RuntimeError: The coroutine waits for something.
    """
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: _T = done.value
        return result
    raise RuntimeError("a coroutine that waits")


class Unscorable(Exception):
    """Raised inside a reward when the row, not the completion, is at fault: the score is None, counted."""


class NoGold(Unscorable):
    """The row has no gold, or an empty one."""


def gold_value(columns: Columns, names: tuple[str, ...]) -> Any:
    """The first of these columns that the row has, as the file had it, a bool as text; NaN is missing.

    Raises:
        NoGold: Every one of the columns is missing or empty.
    """
    for name in names:
        value = restored(columns.get(name))
        if not (value is None or value == "" or value == [] or value != value):
            return str(value) if isinstance(value, bool) else value
    raise NoGold(f"no gold in column {' or '.join(names)}")


def restored(value: Any) -> Any:
    """A loaded value as the data set's file had it; of a text with ``<answer>``, what stands in that.

    Arrays and tensors become lists, dates become text, and whole floats become ints: ``3`` beside ``2.5`` in
    one column is loaded as ``3.0``. Inside an object, a text of JSON is decoded.
    """
    if isinstance(value, str):
        return value.rpartition("<answer>")[2].partition("</answer>")[0].strip()
    if callable(convert := getattr(value, "tolist", None)):
        return restored(convert())
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    if isinstance(value, (list, tuple)):
        return [restored(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _inner(restored(inner)) for key, inner in value.items()}
    return str(value).removesuffix(" 00:00:00") if isinstance(value, datetime.date) else value


def _inner(value: Json) -> Json:
    is_json = isinstance(value, str) and value[:1] + value[-1:] in ("{}", "[]")
    return decoded(value, strict, otherwise=value) if is_json else value


class Unread(Exception):
    """Raised inside a reward when the completion holds no value of its grammar: the lowest score."""

    def __init__(self, text: str, grammar: str = "") -> None:
        super().__init__(f"{text[:MAX_TOLD]!r} is no {grammar}" if grammar else text)


def as_gold(read: Callable[..., _T], gold: Any, *arguments: Any) -> _T:
    """Read a gold by the grammar of answers.

    Raises:
        Unscorable: It does not fit the grammar.
    """
    try:
        return read(gold, *arguments)
    except Unread as fault:
        raise Unscorable(f"gold {fault}") from None


MAX_TOLD = 200  # characters of an answer or a gold that are shown
UNREAD = "unread: "  # begins the reason of a completion that is not in the form that the reward reads


@dataclass(frozen=True)
class Outcome:
    """A score in the reward's range, or None, with what was read and why it is not the highest."""

    score: Score
    reason: str = ""  # why the score is None or not the highest; empty with None: it was not asked
    failed: bool = False  # it has no score through the reward's own fault
    read: str | None = None  # the value that the answer was read as, as text; None: nothing was read

    @classmethod
    def of(cls, score: float, read: object, gold: object, highest: float = 1.0) -> Outcome:
        """The score of an answer against a gold; the reason shows the gold unless that is the highest."""
        return cls(score, "" if score >= highest else f"gold: {gold}"[:MAX_TOLD], read=str(read)[:MAX_TOLD])

    @property
    def unread(self) -> bool:
        """True if the completion is not in the form that the reward reads."""
        return self.reason.startswith(UNREAD)


class Parameters:
    """Parameters of a reward: the keywords of its function, with dataclasses as their fields."""

    def __init__(self, name: str, function: Callable[..., object]) -> None:
        self.name = name
        self.groups: dict[str, Any] = {}  # arguments that stand for several parameters: name and dataclass
        self.defaults: dict[str, object] = {}  # of every parameter
        self.hints: dict[str, Any] = {}  # its type
        hints = get_type_hints(function, include_extras=True)
        for p in inspect.signature(function).parameters.values():
            if dataclasses.is_dataclass(group := hints.get(p.name)):
                self.groups[p.name] = group
                self.defaults |= {item.name: item.default for item in dataclasses.fields(group)}
                self.hints |= get_type_hints(group, include_extras=True)
            elif p.kind is p.KEYWORD_ONLY:
                self.defaults[p.name] = p.default
                self.hints[p.name] = hints[p.name]
        fields: dict[str, Any] = {key: (self.hints[key], default) for key, default in self.defaults.items()}
        self._model = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)

    def packed(self, values: Mapping[str, object]) -> dict[str, Any]:
        """Parameters as the function takes them: those of a group in its dataclass."""
        left = dict(values)
        for name, group in self.groups.items():
            left[name] = group(**{own: left.pop(own) for own in group.__dataclass_fields__ if own in left})
        return left

    def checked(self, values: Mapping[str, object]) -> dict[str, object]:
        """Parameters in their declared types and ranges.

        Raises:
            SettingsError: The reward has no such parameter, or the value does not fit it.
        """
        try:
            made = self._model.model_validate(values)
            return {name: getattr(made, name) for name in values}
        except ValidationError as error:
            fault = error.errors()[0]
        name = str(fault["loc"][0])
        what = f"{fault['msg']} (got {values[name]!r:.80})" if name in self.defaults else "unknown parameter"
        fix = f"parameters: {', '.join(self.defaults) or 'it has none'}"
        if name not in self.defaults and (near := nearest(name, self.defaults, cutoff=0.5)):
            fix = f"did you mean {near!r}? {fix}"
        raise SettingsError(what, where=f"parameter {name!r} of {self.name}", fix=fix)


@dataclass(frozen=True)
class Reward:
    """One reward of the catalogue. Calling it gives the score; `outcome` gives the reason for a None too."""

    name: str  # the name in ``--reward_funcs``
    low: float = 0.0
    high: float = 1.0  # a gold answer reaches it
    gold: tuple[
        str, ...
    ] = ()  # columns that may hold the gold, the first present one counts; empty: needs none
    reads: tuple[str, ...] = ()  # further columns that it looks at
    cost: Cost = "inline"
    function: RewardFunction = field(kw_only=True, repr=False)  # raises `Unscorable` where the reward is None
    gold_text: Callable[..., str] | None = field(default=None, repr=False)  # the gold as a right answer
    # Parameters whose default is this argument of ms-swift, where it is set.
    host_defaults: Mapping[str, str] = field(default_factory=dict, repr=False)
    required: tuple[str, ...] = ()  # parameters that the reward table must set

    def __call__(self, completion: str, columns: Columns | None = None, **parameters: Any) -> Score:
        """Score one completion against its row; keywords are parameters.

        Raises:
            RewardError: It is a batch: a list of completions.
        """
        listed = isinstance(completion, (list, tuple)) and len(completion) > 1
        if listed and not isinstance(completion[0], Mapping):
            fix = "call it on each completion with the values of its row; ms-swift's batches go through orms"
            raise RewardError(f"a batch of {len(completion)} completions", where=self.name, fix=fix)
        return self.outcome(completion, columns or {}, **parameters).score

    def outcome(self, completion: Completion, columns: Columns, **parameters: object) -> Outcome:
        """Like calling it, with what was read and why."""
        import asyncio  # only here: the command line imports this module at every start

        scored = self.awaited(completion, columns, self.declared.checked(parameters) if parameters else {})
        return asyncio.run(scored) if self.cost == "async" else finished(scored)

    async def awaited(
        self, completion: Completion, columns: Columns, parameters: Mapping[str, object]
    ) -> Outcome:
        """`outcome` inside a running loop, with parameters that are checked already."""
        try:
            chosen = self.declared.packed(parameters)
            result = self.function(completion_text(completion), columns, **chosen)
            result = await result if self.cost == "async" else result
        except Unscorable as fault:
            return Outcome(None, str(fault))
        except Unread as fault:
            return Outcome(self.low, f"{UNREAD}{fault}")
        return result if isinstance(result, Outcome) else Outcome(result)

    @functools.cached_property
    def declared(self) -> Parameters:
        """Its parameters."""
        return Parameters(self.name, self.function)

    @property
    def parameters(self) -> dict[str, object]:
        """Name and default of every parameter."""
        return self.declared.defaults

    def __reduce__(self) -> str:
        """Pickle it by its name, as functions are: a child process loads only the reward's own module."""
        return str(self.function.__name__)


def reward(**fields: Any) -> Callable[[RewardFunction], Reward]:
    """Decorator: ``ext_name`` from ``name(completion, columns, *, parameters)``, docstring as card."""

    def wrap(function: RewardFunction) -> Reward:
        made = Reward(f"ext_{function.__name__}", function=function, **fields)
        for name in ("__doc__", "__module__"):  # pickle looks for the reward in its __module__
            object.__setattr__(made, name, getattr(function, name))
        return made

    return wrap
