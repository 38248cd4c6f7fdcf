"""Plausible bugs, kept as data: each is applied to a copy of the project, and its tests must fail.

A list is a TOML file here, one `[[mutant]]` a bug: `id`, `file`, `old` (occurs exactly once in
the file), `new`, `tests` (files or node ids of its area) and `why` it would matter.  A mutant is
*caught* when its tests fail, *escaped* when they pass, *invalid* when they could not run at all:
a bug that stops the tests from being collected proves nothing about them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

LISTS = Path(__file__).parent
ROOT = LISTS.parent.parent

Verdict = Literal["caught", "escaped", "invalid"]

_FAILED = 1  # pytest: tests were collected and run, and some failed
_NONE_CHOSEN = 5  # pytest: no test was left to run
_COPIED = (
    "packager",
    "artifact_cache",
    "containers",
    "templates",
    "scripts",
    "tests",
    "examples",
    "docs",
    "benchmarks",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One bug: `old` becomes `new` in `file`, and `tests` are there to notice."""

    id: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    why: str

    def apply(self, text: str) -> str:
        """Return the file's text with the bug; raise `ValueError` where the list is stale."""
        if text.count(self.old) != 1:
            raise ValueError(
                f"mutant {self.id!r}: its text occurs {text.count(self.old)} times in "
                f"{self.file}, expected once"
            )
        return text.replace(self.old, self.new)


def read_mutants(lists: Iterable[Path] | None = None) -> tuple[Mutant, ...]:
    """Read the kept lists, in the order of their names."""
    found = []
    for path in sorted(lists or LISTS.glob("*.toml")):
        for row in tomllib.loads(path.read_text("utf-8"))["mutant"]:
            found.append(Mutant(**(row | {"tests": tuple(row["tests"])})))
    return tuple(found)


class Workbench:
    """A copy of the project in which one bug at a time stands."""

    def __init__(
        self, place: Path, *, root: Path = ROOT, timeout_s: float = 900, marks: str = ""
    ) -> None:
        """Copy the project to `place`; `marks` is an expression that tests have to fulfil."""
        self._place = place
        self._chosen = ("-m", marks) if marks else ()
        self._timeout_s = timeout_s
        self._clock = 0
        for name in _COPIED:
            if (root / name).is_dir():
                shutil.copytree(
                    root / name, place / name, ignore=shutil.ignore_patterns("__pycache__")
                )
        for file in root.iterdir():
            if file.is_file():
                shutil.copy2(file, place / file.name)

    def check(self, tests: Sequence[str]) -> str:
        """Run tests without a bug; return what went wrong, "" when all passed."""
        status, output = self._pytest(tests)
        return "" if status in (0, _NONE_CHOSEN) else output

    def judge(self, mutant: Mutant) -> tuple[Verdict, str]:
        """Apply the bug, run its tests, take the bug away; return the verdict and pytest's end."""
        path = self._place / mutant.file
        sound = path.read_text("utf-8")
        self._write(path, mutant.apply(sound))
        try:
            status, output = self._pytest(mutant.tests)
        finally:
            self._write(path, sound)
        if status == _FAILED:
            return "caught", output
        return ("escaped" if status in (0, _NONE_CHOSEN) else "invalid"), output

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text, "utf-8")
        # Python compares whole seconds and the size: a bug of equal length must not go unseen.
        self._clock += 2
        changed = path.stat().st_mtime + self._clock
        os.utime(path, (changed, changed))

    def _pytest(self, tests: Sequence[str]) -> tuple[int, str]:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "--no-header",
            "-p",
            "no:cacheprovider",
        ]
        try:
            done = subprocess.run(
                [*command, *self._chosen, *tests],
                cwd=self._place,
                env={**os.environ, "PYTHONPATH": str(self._place)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=self._timeout_s,
            )
        except subprocess.TimeoutExpired:
            return (
                _FAILED,
                f"its tests did not end within {self._timeout_s:.0f} s",
            )  # a hang is seen
        return done.returncode, "\n".join((done.stdout + done.stderr).splitlines()[-25:])


def all_tests(mutants: Iterable[Mutant]) -> Iterator[str]:
    """Yield every test that some mutant names, once."""
    yield from dict.fromkeys(test for mutant in mutants for test in mutant.tests)
