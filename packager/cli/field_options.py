"""Command-line options made from the fields of a model or dataclass.

A field with a description becomes an option: its name, type, bounds, choices and default are
declared once, and the description is the help text. Other fields do not.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import click
from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from packager.cli.choices import NameChoice
from packager.cli.shared_options import Command
from packager.core.errors import UsageError
from packager.core.fields import CommandOption
from packager.core.units import parse_size, parse_time

Owner = TypeVar("Owner")
Option = Callable[[Any], Any]
Callback = Callable[[click.Context, click.Parameter, Any], Any]

_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "ge": operator.ge,
    "gt": operator.gt,
    "le": operator.le,
    "lt": operator.lt,
}


class FiniteRange(click.FloatRange):
    """A number within bounds. `nan` is refused, which comparisons with bounds let through."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Convert as `FloatRange` does, and refuse infinity and NaN."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


class TimeRange(FiniteRange):
    """A time within bounds of seconds, as `90s`, `30m`, `2h` or a number of seconds."""

    def __init__(
        self,
        min: float | None = None,
        max: float | None = None,
        *,
        whole: bool = False,
        **how: Any,
    ) -> None:
        super().__init__(min, max, **how)
        self._whole = whole

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Convert into seconds; raise `UsageError` for what is not a time."""
        if isinstance(value, str):
            value = _with_unit(parse_time, value, param)
        seconds = super().convert(value, param, ctx)
        return round(seconds) if self._whole else seconds


class SizeRange(click.IntRange):
    """A size as `64GiB`, in whole units; a number without a unit is of these."""

    def __init__(self, unit_bytes: int, low: int, high: int) -> None:
        super().__init__(low, high)
        self._unit = unit_bytes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Convert into units, rounded up; raise `UsageError` for what is not a size."""
        if isinstance(value, str) and value.strip()[-1:].isalpha():
            size = int(str(_with_unit(parse_size, value, param)))
            value = -(-size // self._unit)
        found: int = super().convert(value, param, ctx)
        return found


def _with_unit(parse: Callable[[str], Any], text: str, param: click.Parameter | None) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        what, _, how = str(error).partition("; ")
        raise UsageError(f"{param.opts[0]} {what}" if param else what, hint=how) from error


class RenamedOption(click.Option):
    """An option that is also taken by its name of the version before, which nothing shows."""

    def __init__(self, *declared: Any, earlier: str, **how: Any) -> None:
        super().__init__(*declared, **how)
        self.earlier = earlier

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Add both names to the parser; help and completion see the option's own."""
        shown = self.opts
        self.opts = [*shown, self.earlier]
        super().add_to_parser(parser, ctx)
        self.opts = shown


def options_from(
    owner: type,
    *names: str,
    leave_out: Iterable[str] = (),
    callbacks: Mapping[str, Callback] = types.MappingProxyType({}),
    choices: Mapping[str, NameChoice] = types.MappingProxyType({}),
) -> Callable[[Command], Command]:
    """Return a decorator that adds the options of `owner`'s fields, in the order of the fields.

    `names` limits it to these fields.  `choices` are those that only a plug-in table knows;
    `callbacks` parse values that no click type stands for.
    """
    fields = _described_fields(owner)
    skipped = set(leave_out)
    unknown = ({*names} | skipped | callbacks.keys() | choices.keys()) - fields.keys()
    if unknown:
        raise KeyError(f"{owner.__name__} has no described field {sorted(unknown)[0]!r}")
    return add_options(
        _option(field, callbacks.get(name), choices.get(name))
        for name, field in fields.items()
        if (not names or name in names) and name not in skipped
    )


def add_options(*groups: Iterable[Option]) -> Option:
    """Return a decorator that adds options in their order."""
    options = [one for group in groups for one in group]

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def take_fields(owner: type[Owner], given: dict[str, Any], **others: Any) -> Owner:
    """Return `owner` made from a command's options, which are removed from its arguments.

    Missing options have the field's default.
    """
    found = {name: given.pop(name) for name in _described_fields(owner) if name in given}
    return owner(**{name: value for name, value in found.items() if value is not None}, **others)


@dataclass(frozen=True, slots=True, kw_only=True)
class _FieldType:
    """A type without `Annotated` and `None`, with the metadata of both."""

    kind: Any
    bounds: Mapping[str, float]
    spelling: CommandOption
    has_notation: bool  # such as `4GiB`: its own validator parses it


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    name: str
    description: str
    type: _FieldType
    default: Any  # None: none, or none to show
    is_required: bool

    @property
    def flag(self) -> str:
        return self.type.spelling.flag_of(self.name)

    @property
    def help(self) -> str:
        """The description as `--help` writes: a capital, unless a literal begins it, and a stop."""
        first = self.description[:1]
        return (first.upper() + self.description[1:]).replace("`", "") + "."

    @property
    def metavar(self) -> str:
        if self.type.spelling.metavar:
            return self.type.spelling.metavar
        if self.type.kind is int and not self.type.has_notation:
            return "N"
        return self.name.rpartition("_")[2].upper()


def _described_fields(owner: Any) -> dict[str, _Field]:
    """Return the fields that are options; a request's defaults are the planner's to choose."""
    found = _fields_of_model(owner) if issubclass(owner, BaseModel) else _fields_of_dataclass(owner)
    return {field.name: field for field in found if field.description}


def _fields_of_model(owner: type[BaseModel]) -> Iterator[_Field]:
    for name, info in owner.model_fields.items():
        yield _Field(
            name=name,
            description=info.description or "",
            type=_field_type(info.annotation, info.metadata),
            default=None,
            is_required=False,  # a request file may have it
        )


def _fields_of_dataclass(owner: Any) -> Iterator[_Field]:
    """Read the fields of a dataclass; a default outside the field's own bounds means "not set"."""
    hints = get_type_hints(owner, include_extras=True)
    for field in dataclasses.fields(owner):
        info = FieldInfo.from_annotation(hints[field.name])
        found = _field_type(info.annotation, info.metadata)
        is_required = field.default is dataclasses.MISSING
        default = None if is_required or field.default in ((), "") else field.default
        if isinstance(default, int | float) and not _is_within(default, found.bounds):
            default = None
        yield _Field(
            name=field.name,
            description=info.description or "",
            type=found,
            default=",".join(map(str, default)) if isinstance(default, tuple) else default,
            is_required=is_required,
        )


def _option(
    field: _Field, callback: Callback | None, choice: NameChoice | None
) -> Callable[[Command], Command]:
    kind = field.type.kind
    if kind is bool:
        flags = f"{field.flag}/--no-{field.flag[2:]}"
        return click.option(flags, field.name, default=None, help=field.help)
    click_type = None if callback else choice or _click_type(field.type)
    lists_choices = isinstance(click_type, click.Choice) and not field.type.spelling.metavar
    repeatable = get_origin(kind) in (tuple, dict)
    if repeatable and (element := _field_type(get_args(kind)[0])).kind is int:
        callback, repeatable = _number_list(element.bounds), False
    # click takes an explicit default of None for a value, and would not require the option.
    default = () if repeatable else field.default
    stated: dict[str, Any] = {} if field.is_required else {"default": default}
    if field.type.spelling.earlier:
        stated |= {"cls": RenamedOption, "earlier": field.type.spelling.earlier}
    return click.option(
        field.flag,
        field.name,
        type=click_type,
        multiple=repeatable,
        required=field.is_required,
        **stated,
        show_default=field.default is not None,
        callback=callback,
        metavar=None if lists_choices else field.metavar,
        help=field.help + (" Repeatable." if repeatable else ""),
    )


def _click_type(found: _FieldType) -> Any:
    if get_origin(found.kind) is Literal:
        return click.Choice(get_args(found.kind))
    bounds = found.bounds
    if found.kind is int and not found.has_notation:
        return click.IntRange(_whole(bounds.get("ge")), _whole(bounds.get("le")))
    if found.kind is float:
        return (TimeRange if found.spelling.metavar == "TIME" else FiniteRange)(
            min=bounds.get("ge", bounds.get("gt")),
            max=bounds.get("le", bounds.get("lt")),
            min_open="gt" in bounds,
            max_open="lt" in bounds,
        )
    return None


def _number_list(bounds: Mapping[str, float]) -> Callback:
    """Return a callback that parses whole numbers with commas between them, such as `1,2,4`."""

    def parse(
        context: click.Context, parameter: click.Parameter, text: str | None
    ) -> tuple[int, ...] | None:
        if text is None:
            return None
        parts = text.split(",")
        if all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts):
            numbers = tuple(map(int, parts))
            if all(_is_within(number, bounds) for number in numbers):
                return numbers
        limits = " to ".join(str(bounds[name]) for name in ("ge", "le") if name in bounds)
        raise click.BadParameter(
            f"{text[:60]!r} is not a list of numbers{f' from {limits}' if limits else ''}, "
            "such as 1,2,4",
            context,
            parameter,
        )

    return parse


def _field_type(annotation: Any, metadata: Iterable[Any] = ()) -> _FieldType:
    """Remove `Annotated` and `None` from a type, and collect their metadata."""
    said = list(metadata)
    while True:
        if get_origin(annotation) is Annotated:
            annotation, *more = get_args(annotation)
            said += more
            continue
        if get_origin(annotation) not in (Union, types.UnionType):
            break
        kinds = [one for one in get_args(annotation) if one is not types.NoneType]
        if len(kinds) > 1:
            break  # a callback parses it
        (annotation,) = kinds
    items = [
        item for one in said for item in (one.metadata if isinstance(one, FieldInfo) else [one])
    ]
    return _FieldType(
        kind=annotation,
        bounds={
            name: getattr(item, name)
            for item in items
            for name in _COMPARE
            if getattr(item, name, None) is not None
        },
        spelling=next((one for one in items if isinstance(one, CommandOption)), CommandOption()),
        has_notation=any(isinstance(one, BeforeValidator) for one in items),
    )


def _is_within(value: float, bounds: Mapping[str, float]) -> bool:
    return all(_COMPARE[name](value, bound) for name, bound in bounds.items())


def _whole(bound: float | None) -> int | None:
    return None if bound is None else int(bound)
