"""Partial documents merged into whole ones, and operations of a JSON patch.  Pure.

Merging is Kubernetes' strategic merge: mappings merge, `null` removes, elements of a list that
has a key are found by it, other lists are replaced, `$patch: delete` and `$patch: replace` say so.
Without keys that is a JSON merge patch (RFC 7386).  A JSON patch is RFC 6902.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

DIRECTIVE = "$patch"
_INDEX = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_OPERATIONS = {
    "add": ("path", "value"),
    "remove": ("path",),
    "replace": ("path", "value"),
    "move": ("from", "path"),
    "copy": ("from", "path"),
    "test": ("path", "value"),
}


class CannotMerge(ValueError):
    """A patch names a missing part, or an impossible operation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRules:
    """How lists of a platform's documents merge, by the field that they are in."""

    keys: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    appends: bool = False  # to a list without a key, what is not in it; else it is replaced
    replaced: frozenset[str] = frozenset()  # lists that are replaced all the same


def merge(document: Any, part: Any, rules: MergeRules, name: str = "") -> Any:
    """Return a document with a part merged into it; raise `CannotMerge`."""
    if isinstance(part, Mapping):
        return _merge_mapping(document if isinstance(document, Mapping) else {}, part, rules)
    if isinstance(part, list):
        there = document if isinstance(document, list) else []
        if key := _key_of(part, there, rules.keys.get(name, ())):
            return _merge_by_key(there, part, key, rules)
        if rules.appends and name not in rules.replaced:
            return [*there, *(one for one in part if one not in there)]
    return part


def _merge_mapping(there: Mapping[str, Any], part: Mapping[str, Any], rules: MergeRules) -> Any:
    fields = {key: value for key, value in part.items() if key != DIRECTIVE}
    unknown = next((key for key in fields if str(key).startswith("$")), None)
    if unknown is not None:
        raise CannotMerge(f"{unknown} is not done here: use a JSON patch")
    directive = part.get(DIRECTIVE, "merge")
    if directive not in ("merge", "replace"):
        raise CannotMerge(
            f"{DIRECTIVE} {str(directive)[:40]!r} stands where only merge and replace can"
        )
    made = dict(there) if directive == "merge" else {}
    for key, value in fields.items():
        if value is None or (isinstance(value, Mapping) and value.get(DIRECTIVE) == "delete"):
            made.pop(key, None)
        else:
            made[key] = merge(made.get(key), value, rules, key)
    return made


def _key_of(part: Sequence[Any], there: Sequence[Any], keys: Sequence[str]) -> str:
    """Return the key that every element has; "" where the list has none."""
    whole = [*there, *part]
    is_keyed = all(isinstance(one, Mapping) for one in whole)
    return next((key for key in keys if is_keyed and all(key in one for one in whole)), "")


def _merge_by_key(
    there: Sequence[Mapping[str, Any]],
    part: Sequence[Mapping[str, Any]],
    key: str,
    rules: MergeRules,
) -> list[Any]:
    made = [dict(one) for one in there]
    for one in part:
        at = next((number for number, old in enumerate(made) if old[key] == one[key]), None)
        if one.get(DIRECTIVE) == "delete":
            made = [old for old in made if old[key] != one[key]]
        elif at is None:
            made.append(_merge_mapping({}, one, rules))
        else:
            made[at] = _merge_mapping(made[at], one, rules)
    return made


def check_operation(operation: Any) -> Mapping[str, Any]:
    """Return an operation of a JSON patch; raise `CannotMerge` where it is none."""
    verb = operation.get("op") if isinstance(operation, Mapping) else None
    if verb not in _OPERATIONS:
        raise CannotMerge(f"op {str(verb)[:40]!r} is not one of {', '.join(_OPERATIONS)}")
    for name in _OPERATIONS[verb]:
        if name not in operation:
            raise CannotMerge(f"an operation {verb!r} has no {name!r}")
        if name != "value" and not str(operation[name]).startswith("/"):
            raise CannotMerge(f"{name} {str(operation[name])[:80]!r} does not begin with a slash")
    return dict(operation)


def pointer(text: str) -> tuple[str, ...]:
    """Return the names of a JSON pointer (RFC 6901)."""
    return tuple(one.replace("~1", "/").replace("~0", "~") for one in text.split("/")[1:])


def operate(document: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    """Return a document after operations, all of them or none; raise `CannotMerge`."""
    made = _copied(document)
    for one in operations:
        verb, path = one["op"], pointer(one["path"])
        if verb in ("move", "copy"):
            origin = pointer(one["from"])
            value = _copied(_at(made, origin))
            if verb == "move":
                if path[: len(origin)] == origin and path != origin:
                    raise CannotMerge(f"{one['from']!r} cannot be moved into itself")
                made = _changed(made, origin, "remove", None)
            verb = "add"
        else:
            value = _copied(one.get("value"))
        if verb == "test":
            if not _equal(_at(made, path), value):
                raise CannotMerge(f"test fails: {one['path']!r} has another value")
        else:
            made = _changed(made, path, verb, value)
    return made


def _at(document: Any, path: Sequence[str]) -> Any:
    for name in path:
        if isinstance(document, Mapping) and name in document:
            document = document[name]
        elif isinstance(document, list):
            document = document[_index(name, len(document) - 1)]
        else:
            raise CannotMerge(f"there is no {name!r} at /{'/'.join(path)}")
    return document


def _changed(document: Any, path: Sequence[str], verb: str, value: Any) -> Any:
    """Change a document of our own in place."""
    if not path:
        raise CannotMerge("a whole document is neither added nor removed")
    holder, name = _at(document, path[:-1]), path[-1]
    if isinstance(holder, list):
        if verb == "add":
            holder.insert(len(holder) if name == "-" else _index(name, len(holder)), value)
        elif verb == "remove":
            del holder[_index(name, len(holder) - 1)]
        else:
            holder[_index(name, len(holder) - 1)] = value
    elif isinstance(holder, dict):
        if verb != "add" and name not in holder:
            raise CannotMerge(f"there is no {name!r} at /{'/'.join(path)}")
        if verb == "remove":
            del holder[name]
        else:
            holder[name] = value
    else:
        raise CannotMerge(f"/{'/'.join(path)} is below a value that holds nothing")
    return document


def _index(name: str, most: int) -> int:
    if not _INDEX.fullmatch(name) or int(name) > most:
        raise CannotMerge(f"{name!r} is no place in a list whose last is {most}")
    return int(name)


def _equal(one: Any, other: Any) -> bool:
    """Compare as JSON does: true is not 1."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_copied(one) for one in value]
    return value
