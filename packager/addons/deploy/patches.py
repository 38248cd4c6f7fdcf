"""Changes that a user's file makes to rendered documents, where no option does.

A mapping, or several documents with `kind`, is merged; a list is a JSON patch.  What a deployment
is found by stays: its names and the labels or tags of its owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packager.addons.check.plain import holds_secret
from packager.addons.deploy.checks import secret_in_file
from packager.addons.deploy.merging import (
    CannotMerge,
    MergeRules,
    check_operation,
    merge,
    operate,
    pointer,
)
from packager.core.documents import NotStrict
from packager.core.errors import UsageError
from packager.core.suggestions import nearest
from packager.core.text import escape
from packager.core.yaml_values import parse_yaml_values

MAX_BYTES = 1 << 20
_VARIABLES = ("env", "environment", "Environment", "environmentVariables", "Tags")


def bad_patch(why: str, hint: str = "") -> UsageError:
    """Return an error: a patch that is invalid, or that matches no rendered object."""
    return UsageError(
        f"--patch: {why}",
        hint=hint or "`render` without --patch shows what can be changed",
        code="BadPatch",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """Parts to merge, or operations; without either it changes nothing."""

    parts: tuple[Any, ...] = ()
    operations: tuple[Mapping[str, Any], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.parts or self.operations)

    def names(self) -> tuple[str, ...]:
        """Return the names of what it changes, outermost."""
        named = [key for part in self.parts if isinstance(part, Mapping) for key in part]
        paths = [pointer(one[where]) for one in self.operations for where in _places(one)]
        return tuple(dict.fromkeys([*named, *(path[0] for path in paths)]))

    def below(self, name: str) -> Patch:
        """Return what it changes below a name; raise `UsageError` for moves between names."""
        inside = []
        for one in self.operations:
            places = {where: pointer(one[where]) for where in _places(one)}
            if {path[0] for path in places.values()} == {name}:
                rest = {where: _text(path[1:]) for where, path in places.items()}
                if "" in rest.values():
                    raise bad_patch(f"an operation changes the whole of {name!r}")
                inside.append({**one, **rest})
            elif name in {path[0] for path in places.values()}:
                raise bad_patch(f"{one['op']} goes from one document to another")
        parts = (part[name] for part in self.parts if isinstance(part, Mapping) and name in part)
        return Patch(parts=tuple(parts), operations=tuple(inside))

    def apply(self, document: Mapping[str, Any], rules: MergeRules) -> dict[str, Any]:
        """Return the changed document; raise `UsageError` for credentials."""
        made: Any = dict(document)
        try:
            for part in self.parts:
                made = merge(made, part, rules)
            made = operate(made, self.operations) if self.operations else made
        except CannotMerge as error:
            raise bad_patch(escape(str(error))) from error
        if not isinstance(made, dict):
            raise bad_patch("a document is no mapping after it")
        _refuse_credentials(made)
        return made

    def refuse_others(self, known: Iterable[str], what: str) -> None:
        """Raise `UsageError` for a name that nothing rendered has."""
        known = tuple(dict.fromkeys(known))
        for name in self.names():
            if name not in known:
                guess = nearest(str(name)[:80], known)
                raise bad_patch(
                    f"{escape(str(name)[:80])!r} is not {what}",
                    f"did you mean {guess!r}?" if guess else f"there are {', '.join(known)}",
                )


NO_PATCH = Patch()


def parse_patch(data: bytes, file: str) -> Patch:
    """Return what a file of YAML or JSON changes; raise `UsageError`."""
    try:
        documents = parse_yaml_values(data)
    except NotStrict as error:
        raise bad_patch(f"{Path(file).name} cannot be read: {error}") from error
    if len(documents) == 1 and isinstance(documents[0], list):
        try:
            operations = tuple(check_operation(one) for one in documents[0])
        except CannotMerge as error:
            raise bad_patch(f"{Path(file).name}: {escape(str(error))}") from error
        return Patch(operations=operations)
    if not documents or not all(isinstance(one, dict) for one in documents):
        raise bad_patch(
            f"{Path(file).name} holds neither mappings nor one list of operations",
            'write the fields to change, or [{"op": "add", "path": "/…", "value": …}]',
        )
    return Patch(parts=tuple(documents))


def _places(operation: Mapping[str, Any]) -> tuple[str, ...]:
    return ("path", "from") if operation["op"] in ("move", "copy") else ("path",)


def _text(path: Iterable[str]) -> str:
    return "".join(f"/{one.replace('~', '~0').replace('/', '~1')}" for one in path)


def _refuse_credentials(found: Any) -> None:
    """Raise `UsageError` for a variable or tag that holds a credential."""
    waiting = [found]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting += one
        elif isinstance(one, dict):
            waiting += one.values()
            for name in _VARIABLES:
                for variable, value in _variables(one.get(name)):
                    if isinstance(value, str) and holds_secret(variable, value):
                        raise secret_in_file(variable)


def _variables(found: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(found, dict):
        return [(str(name), value) for name, value in found.items()]
    rows = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    named = (
        (one.get("name", one.get("Key", "")), one.get("value", one.get("Value"))) for one in rows
    )
    return [(str(name), value) for name, value in named]
