"""Which tests run which lines, measured once for a state of the code and kept beside git.

`python scripts/_covering.py PLACE TESTS...` measures; it runs in a process of its own, so that
nothing of packager is imported before.  Lines that an import runs belong to no test: tests of such
a line are those of the lines where the names that it gives are used.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import zip_longest
from pathlib import Path

from _mutations import product_files

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "out" / "mutate"
_LINES, _SECONDS = "lines.sqlite", "seconds.json"


def digest_of(paths: Iterable[Path]) -> str:
    """Return a digest of the names and bytes of files, and of all files below directories."""
    found = hashlib.sha256()
    for path in paths:
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                content = hashlib.sha256(file.read_bytes()).hexdigest()
                found.update(f"{file.relative_to(ROOT)}\0{content}\n".encode())
    return found.hexdigest()[:16]


def product_digest() -> str:
    """Return the digest of everything that the product is made of."""
    tops = ("packager", "artifact_cache", "templates", "containers")
    return digest_of(ROOT / top for top in tops)


def support_digest() -> str:
    """Return the digest of what all tests share."""
    shared = sorted((ROOT / "tests").rglob("conftest.py"))
    return digest_of([ROOT / "tests/support", *shared, ROOT / "pyproject.toml"])


def coverage_map(tests: Sequence[str], out: Path = OUT) -> CoverageMap:
    """Return the map of some tests, measured now unless there is one of the same code."""
    code = digest_of(ROOT / top for top in ("packager", "artifact_cache", *tests))
    key = hashlib.sha256("\0".join([code, support_digest(), *tests]).encode()).hexdigest()[:16]
    place = out / f"map-{key}"
    if not (place / _SECONDS).is_file():
        place.mkdir(parents=True, exist_ok=True)
        print(f"measuring which lines {' '.join(tests)} run", file=sys.stderr)
        command = [sys.executable, str(Path(__file__).resolve()), str(place), *tests]
        done = subprocess.run(command, cwd=ROOT, stdout=sys.stderr)
        if done.returncode not in (0, 1) or not (place / _SECONDS).is_file():
            sys.exit(f"error: the measurement ended with status {done.returncode}")
    return CoverageMap(place)


class CoverageMap:
    """The tests that passed, their processor seconds, and the lines that they ran."""

    def __init__(self, place: Path) -> None:
        self.seconds: dict[str, float] = json.loads((place / _SECONDS).read_text("utf-8"))
        self._lines = sqlite3.connect(place / _LINES)
        from coverage import numbits

        self._numbits = numbits
        numbits.register_sqlite_functions(self._lines)
        rows = self._lines.execute("SELECT id, path FROM file").fetchall()
        self._files = {Path(path).relative_to(ROOT).as_posix(): number for number, path in rows}

    def tests_of(self, file: str, lines: Iterable[int] | None = None) -> set[str]:
        """Return the tests that ran one of the lines; without any, a line of the file."""
        number = self._files.get(file)
        if number is None:
            return set()
        query = (
            "SELECT context.context FROM line_bits JOIN context ON context.id = context_id "
            "WHERE file_id = ?"
        )
        if lines is None:
            rows = self._lines.execute(query, (number,))
        else:
            query += " AND numbits_any_intersection(numbits, ?)"
            rows = self._lines.execute(query, (number, self._numbits.nums_to_numbits(lines)))
        return {test for (test,) in rows if test in self.seconds}

    def tests_of_names(self, file: str, names: Iterable[str]) -> set[str]:
        """Return the tests that use what an import of the file makes under these names.

        They run a line with one of the names in the file itself or one that imports it, or are
        in a file of tests that does both.
        """
        names = set(names)
        module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        imported = {module, module.rpartition(".")[2]}
        found: set[str] = set()
        for other, used in self._users.items():
            lines = {line for name in names for line in used.get(name, ())}
            if not lines or not (other == file or imported & used.keys()):
                continue
            if other.startswith("tests/"):
                found |= self._tests_in[other]
            else:
                found |= self.tests_of(other, lines)
        return found

    @cached_property
    def _tests_in(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        for test in self.seconds:
            found[test.partition("::")[0]].add(test)
        return found

    @cached_property
    def _users(self) -> dict[str, dict[str, set[int]]]:
        """Lines of each file, the tests included, on which a name is used."""
        files = [*product_files(ROOT), *self._tests_in]
        return {file: names_used((ROOT / file).read_text("utf-8")) for file in files}


def names_used(text: str) -> dict[str, set[int]]:
    """Return the lines on which each name is read, as itself, an attribute or a keyword."""
    found: dict[str, set[int]] = defaultdict(set)
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
                found[name].add(node.lineno)
            case ast.keyword(arg=str(name)):
                found[name].add(node.lineno)
            case ast.ImportFrom(module=str(name)):
                for one in (name, *(alias.name for alias in node.names)):
                    found[one].add(node.lineno)
    return found


def lines_of(part: str, text: str) -> range:
    """Return the lines on which the first occurrence of a part of a text stands."""
    start = text.index(part)
    first = text.count("\n", 0, start + len(part) - len(part.lstrip("\n"))) + 1
    return range(first, text.count("\n", 0, start + len(part.rstrip("\n"))) + 2)


def in_order(
    tests: Iterable[str], seconds: dict[str, float], room: str, most: int, most_s: float
) -> list[str]:
    """Choose tests: of the same room first, the fastest first, a case of each before all cases."""
    functions: dict[str, list[str]] = defaultdict(list)
    for test in sorted(tests, key=lambda test: (seconds[test], test)):
        functions[test.partition("[")[0]].append(test)
    own = f"/{room.rpartition('/')[2]}/"
    ranked = sorted(
        functions.values(),
        key=lambda cases: (own not in cases[0].partition("::")[0], seconds[cases[0]]),
    )
    chosen: list[str] = []
    total = 0.0
    for test in _one_of_each(ranked):
        total += seconds[test]
        if len(chosen) == most or (chosen and total > most_s):
            break
        chosen.append(test)
    return chosen


def _one_of_each(groups: list[list[str]]) -> Iterator[str]:
    for row in zip_longest(*groups):
        yield from (test for test in row if test is not None)


def measure(place: Path, tests: Sequence[str]) -> int:
    """Run tests under coverage, each in a context of its own."""
    os.environ["COVERAGE_CORE"] = "ctrace"  # the other ones have no contexts
    import coverage
    import pytest

    (place / _LINES).unlink(missing_ok=True)
    measured = coverage.Coverage(
        data_file=str(place / _LINES),
        config_file=False,
        include=[f"{ROOT}/packager/*", f"{ROOT}/artifact_cache/*"],
        messages=False,
    )
    seconds: dict[str, float] = {}  # of the processor: a busy machine makes no test slow
    left_out: set[str] = set()

    class Measuring:
        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
            measured.switch_context(item.nodeid)
            started = time.process_time()
            try:
                return (yield)
            finally:
                seconds[item.nodeid] = time.process_time() - started
                measured.switch_context("")

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.outcome != "passed":
                left_out.add(report.nodeid)

    sys.path.insert(0, str(ROOT))
    measured.start()
    try:
        status = pytest.main(["-q", "-p", "no:cacheprovider", *tests], plugins=[Measuring()])
    finally:
        measured.stop()
        measured.save()
    kept = {test: round(took, 4) for test, took in seconds.items() if test not in left_out}
    if status in (0, 1):
        (place / _SECONDS).write_text(json.dumps(kept), "utf-8")
    return int(status)


if __name__ == "__main__":
    sys.exit(measure(Path(sys.argv[1]), sys.argv[2:]))
