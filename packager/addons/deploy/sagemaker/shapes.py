"""Shapes of the SageMaker API and those beside it, as botocore's service model describes them.

botocore's own validator looks at types and lengths only, and not at all at answers; the service
checks patterns and choices, too.  The wording of faults is the service's, so that clients that
look for words in it find them.  What the model does not know is refused, where the service drops
it silently.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from artifact_cache.distribution import install_command
from packager.addons.deploy.sagemaker.api_refusals import ValidationRefused, serialization_refused
from packager.core.errors import Unavailable
from packager.core.text import escape

Shape = Mapping[str, Any]
Shapes = Mapping[str, Shape]  # of a service, by name
SAGEMAKER = "sagemaker"

MOST_FAULTS = 20  # in one message; all are counted
MOST_SHOWN = 256  # characters of a value in a message
LONGEST_MATCHED = 16_384  # characters that a pattern is tried on, where its shape has no length

_YEAR_10000 = 253402300800  # in seconds since 1970: the first invalid time
_INTEGERS = {"integer": 2**31 - 1, "long": 2**63 - 1}
_WORDS = {
    "structure": "a structure",
    "list": "a list",
    "map": "a map",
    "string": "a String",
    "blob": "a String",
    "boolean": "a Boolean",
    "integer": "an Integer",
    "long": "a Long",
    "float": "a Float",
    "double": "a Double",
    "timestamp": "a Timestamp",
}
_WIDENED = {"DestinationS3Uri": r"(https|s3|file)://(.*)"}  # captures into directories are ours
_CATEGORY = re.compile(r"\\p\{(\w+)\}")


def model_missing(operation: str = "") -> Unavailable:
    """Return an error: botocore, which has the API's shapes, is not installed, or too old for an

    operation.
    """
    if operation:
        what = f"botocore {_installed()} does not know the operation {operation!r}"
        hint = f"update it with `{install_command('boto3', 'serve')}`"
    else:
        what = "documents of SageMaker need botocore, which is not installed"
        hint = f"install it with `{install_command('boto3', 'serve')}`"
    return Unavailable(what, hint=hint, code="ModelMissing")


def _installed() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("botocore")
    except PackageNotFoundError:  # such as in a zip
        return "as it is installed"


def read_input(operation: str, body: object, service: str = SAGEMAKER) -> dict[str, Any]:
    """Return a request's body without its nulls, which mean nothing.

    Raises `ApiRefusal` for values of another type, `ValidationRefused` for any other
    fault: one message names all errors.
    """
    shapes, shape = _shape_of(operation, "input", service)
    if shape is None:
        shape = {"type": "structure", "members": {}}
    cleaned = _without_nulls(body)
    mistyped = next(_mistyped(shapes, shape, cleaned, ""), None)
    if mistyped is not None:
        raise serialization_refused(mistyped)
    faults = list(_faults(shapes, shape, cleaned, ""))
    if faults:
        many = "1 validation error" if len(faults) == 1 else f"{len(faults)} validation errors"
        raise ValidationRefused(f"{many} detected: {'; '.join(faults[:MOST_FAULTS])}")
    assert isinstance(cleaned, dict)
    return cleaned


def input_faults(
    operation: str, body: Mapping[str, Any], service: str = SAGEMAKER
) -> tuple[str, ...]:
    """Return what is wrong with a request: types, members and every constraint."""
    shapes, shape = _shape_of(operation, "input", service)
    if shape is None:
        return ("the operation takes nothing",) if body else ()
    return tuple(_mistyped(shapes, shape, body, "")) or tuple(_faults(shapes, shape, body, ""))


def answer_faults(
    operation: str, answer: Mapping[str, Any], service: str = SAGEMAKER
) -> tuple[str, ...]:
    """Return what is wrong with an answer: types, members and every constraint."""
    shapes, shape = _shape_of(operation, "output", service)
    if shape is None:
        return ("the operation has no answer",) if answer else ()
    return (*_mistyped(shapes, shape, answer, ""), *_faults(shapes, shape, answer, ""))


def is_operation(name: str) -> bool:
    """Check that the API has an operation of that name."""
    return name in service_model()["operations"]


def check_model_of(operations: Iterable[str]) -> None:
    """Raise `Unavailable` where the installed botocore lacks one of these operations."""
    known = service_model()["operations"]
    if missing := sorted(set(operations) - set(known)):
        raise model_missing(missing[0])


def skeleton(operation: str) -> dict[str, Any]:
    """Return an empty body with every member of an operation, as `aws … --generate-cli-skeleton`.

    Raises `Unavailable`.
    """
    service_model()
    from botocore.model import ServiceModel
    from botocore.utils import ArgumentGenerator

    found = ServiceModel(service_model()).operation_model(operation)
    made: dict[str, Any] = ArgumentGenerator().generate_skeleton(found.input_shape)
    return made


@cache
def service_model() -> Mapping[str, Any]:
    """Read the model of SageMaker that botocore ships; raises `Unavailable` without one."""
    read = _read_model(SAGEMAKER)
    for name, pattern in _WIDENED.items():
        read["shapes"][name] = {**read["shapes"][name], "pattern": pattern}
    return read


@cache
def _other_model(service: str) -> Mapping[str, Any]:
    return _read_model(service)


def _read_model(service: str) -> dict[str, Any]:
    try:
        from botocore.loaders import Loader
    except ImportError as error:
        raise model_missing() from error
    # Models in the user's home are left out: they could change what is accepted.
    loader = Loader(
        extra_search_paths=[Loader.BUILTIN_DATA_PATH], include_default_search_paths=False
    )
    read: dict[str, Any] = loader.load_service_model(service, "service-2")
    return read


def _shape_of(operation: str, side: str, service: str) -> tuple[Shapes, Shape | None]:
    """Return the shapes of a service, and that of an operation's input or output."""
    model = service_model() if service == SAGEMAKER else _other_model(service)
    operations = model["operations"]
    if operation not in operations:
        raise model_missing(operation)
    named = operations[operation].get(side)
    shapes: Shapes = model["shapes"]
    return shapes, None if named is None else _shape(shapes, named)


def _shape(shapes: Shapes, reference: Mapping[str, Any]) -> Shape:
    return shapes[reference["shape"]]


def _without_nulls(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    if isinstance(value, list | tuple):
        return [_without_nulls(one) for one in value]
    return value


def _mistyped(shapes: Shapes, shape: Shape, value: object, path: str) -> Iterator[str]:
    """Yield what has another JSON type than its shape."""
    kind = shape["type"]
    if not _is_of(kind, value):
        where = path or "the body"
        yield f"{_json_type(value)} at {where!r} can not be converted to {_WORDS[kind]}"
    elif kind == "structure":
        assert isinstance(value, Mapping)
        for name, member in shape["members"].items():
            if name in value:
                yield from _mistyped(
                    shapes, _shape(shapes, member), value[name], _below(path, name)
                )
    elif kind == "list":
        assert isinstance(value, list | tuple)
        for number, one in enumerate(value, 1):
            yield from _mistyped(
                shapes, _shape(shapes, shape["member"]), one, f"{path}.{number}.member"
            )
    elif kind == "map":
        assert isinstance(value, Mapping)
        for key, one in value.items():
            yield from _mistyped(
                shapes, _shape(shapes, shape["value"]), one, f"{path}.{_shown(key)}.member"
            )


def _is_of(kind: str, value: object) -> bool:
    if kind in ("structure", "map"):
        return isinstance(value, Mapping)
    if kind == "list":
        return isinstance(value, list | tuple)
    if kind == "boolean":
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if kind in _INTEGERS:
        return isinstance(value, int) and -_INTEGERS[kind] - 1 <= value <= _INTEGERS[kind]
    if kind == "timestamp":
        return isinstance(value, int | float) and 0 <= value < _YEAR_10000
    if kind in ("float", "double"):
        return isinstance(value, int | float)
    return isinstance(value, str)


def _json_type(value: object) -> str:
    if isinstance(value, bool):
        return "TRUE_VALUE" if value else "FALSE_VALUE"
    if isinstance(value, int | float):
        return "NUMBER_VALUE"
    if isinstance(value, str):
        return "STRING_VALUE"
    return "START_OBJECT" if isinstance(value, Mapping) else "START_ARRAY"


def _faults(shapes: Shapes, shape: Shape, value: Any, path: str) -> Iterator[str]:
    """Yield what breaks a constraint, in values whose types are right."""
    kind = shape["type"]
    if kind == "structure":
        yield from _structure_faults(shapes, shape, value, path)
        return
    constraints = list(_constraints(shape, value))
    if kind == "map":
        inner = {text for key in value for text in _constraints(_shape(shapes, shape["key"]), key)}
        constraints += [f"Map keys must satisfy constraint: [{', '.join(sorted(inner))}]"] * bool(
            inner
        )
    for constraint in constraints:
        yield _fault(shape, value, path, constraint)
    if kind == "list":
        for number, one in enumerate(value, 1):
            yield from _faults(
                shapes, _shape(shapes, shape["member"]), one, f"{path}.{number}.member"
            )
    elif kind == "map":
        hidden = {**_shape(shapes, shape["value"]), "sensitive": True}
        for key, one in value.items():
            yield from _faults(shapes, hidden, one, f"{path}.{_shown(key)}.member")


def _structure_faults(
    shapes: Shapes, shape: Shape, value: Mapping[str, Any], path: str
) -> Iterator[str]:
    members = shape["members"]
    for name in shape.get("required", ()):
        if name not in value:
            yield (
                f"Value null at '{_below(path, name)}' failed to satisfy constraint: "
                "Member must not be null"
            )
    for name in value:
        if name not in members:
            where = f" at '{path}'" if path else ""
            known = ", ".join(members)
            yield f'Unknown parameter in input{where}: "{_shown(name)}", must be one of: {known}'
    if shape.get("union") and len(value.keys() & members.keys()) != 1:
        constraint = f"Member must have exactly one of its members set: [{', '.join(members)}]"
        yield f"Value '{_shown(value)}' at '{path}' failed to satisfy constraint: {constraint}"
    for name, member in members.items():
        if name in value:
            yield from _faults(shapes, _shape(shapes, member), value[name], _below(path, name))


def _constraints(shape: Shape, value: Any) -> Iterator[str]:
    least, most = shape.get("min"), shape.get("max")
    if shape["type"] in ("string", "list", "map", "blob"):
        what, size = "length", len(value)
    elif shape["type"] in ("integer", "long", "float", "double"):
        what, size = "value", value
    else:
        return
    if most is not None and size > most:
        yield f"Member must have {what} less than or equal to {most}"
    if least is not None and size < least:
        yield f"Member must have {what} greater than or equal to {least}"
    if shape["type"] != "string":
        return
    if "enum" in shape and value not in shape["enum"]:
        yield f"Member must satisfy enum value set: [{', '.join(shape['enum'])}]"
    longest = LONGEST_MATCHED if most is None else most
    if "pattern" in shape and len(value) <= longest and not _matches(shape["pattern"], value):
        yield f"Member must satisfy regular expression pattern: {shape['pattern']}"


def _fault(shape: Shape, value: object, path: str, constraint: str) -> str:
    shown = "" if shape.get("sensitive") else f" '{_shown(value)}'"
    return f"Value{shown} at '{path}' failed to satisfy constraint: {constraint}"


def _below(path: str, name: str) -> str:
    lowered = name[:1].lower() + name[1:]
    return f"{path}.{lowered}" if path else lowered


def _shown(value: object) -> str:
    """Write a value as the service does, in one line that is safe to print."""
    if isinstance(value, Mapping):  # its values may be secrets
        text = "{" + ", ".join(f"{key}=…" for key in list(value)[:20]) + "}"
    elif isinstance(value, list | tuple):
        text = "[" + ", ".join(str(one) for one in value[:20]) + "]"
    else:
        text = str(value)
    return escape(text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…")


def _matches(pattern: str, text: str) -> bool:
    compiled = compiled_pattern(pattern)
    return compiled is None or compiled.fullmatch(text) is not None


@cache
def compiled_pattern(pattern: str) -> re.Pattern[str] | None:
    """Compile a pattern of the model, which is Java's; None where Python has no equivalent."""
    try:
        return re.compile(_CATEGORY.sub(lambda found: _letters(found[1]), pattern), re.ASCII)
    except re.error:
        return None


@cache
def _letters(category: str) -> str:
    r"""Return the characters of `\p{…}` as ranges for a set of a pattern."""
    if category == "Alnum":
        return "A-Za-z0-9"
    ranges: list[str] = []
    first: int | None = None
    for code in range(sys.maxunicode + 2):
        inside = code <= sys.maxunicode and unicodedata.category(chr(code)).startswith(category)
        if inside and first is None:
            first = code
        elif not inside and first is not None:
            ranges.append(f"\\U{first:08x}-\\U{code - 1:08x}")
            first = None
    return "".join(ranges)
