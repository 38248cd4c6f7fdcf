"""Whoever raises an error or reports a problem says what to do: read from the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from packager.core import errors
from tests.support.cases import cases_of
from tests.support.places import ROOT

cases = cases_of(__file__)

KINDS = {
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.PackagerError)
}
# Bugs are told to be reported; these make their hint themselves.
WITHOUT = {"PackagerError", "PlanRejected", "LostFromCache", "CachedFileChanged", "SystemLimit"}
HELD = {  # where the caller adds the hint, or the error is told as part of another
    "packager/cli/run/containers.py",
    "packager/cli/run/serving.py",
}


def sources() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / "packager").rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def calls_without_hint(name: str, module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        called = node.func.id
        given = {word.arg: word.value for word in node.keywords}
        if called == "Finding" and node.args and "note" not in ast.unparse(node.args[0]):
            hint = node.args[3] if len(node.args) > 3 else given.get("hint")
        elif called in KINDS - WITHOUT and None not in given:
            hint = given.get("hint")
        else:
            continue
        if hint is None or (isinstance(hint, ast.Constant) and not hint.value):
            yield f"{name}:{node.lineno}: {called}"


def test_every_error_and_every_problem_of_a_plan_has_a_hint() -> None:
    bare = [found for name, module in sources() for found in calls_without_hint(name, module)]

    assert [found for found in bare if found.partition(":")[0] not in HELD] == []


@cases("an_error_without_a_hint_is_found")
def test_an_error_without_a_hint_is_found(source: str) -> None:
    assert list(calls_without_hint("a.py", ast.parse(source))) != []


@cases("what_has_one_or_needs_none_is_not")
def test_what_has_one_or_needs_none_is_not(source: str) -> None:
    assert list(calls_without_hint("a.py", ast.parse(source))) == []


def test_the_files_that_are_held_are_there() -> None:
    assert all(Path(ROOT, name).is_file() for name in HELD)
