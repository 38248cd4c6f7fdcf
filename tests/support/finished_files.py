"""A pytest plug-in that writes down each test file when all its tests are over.

`pytest -p tests.support.finished_files --finished FILE` appends a line of JSON for each test file:
`file`, `passed` and `skipped`, `failed` (the names of the tests) and `seconds`, summed over its
tests.  A run that is killed leaves the lines of the files that were complete.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--finished", metavar="FILE", help="where complete test files are listed")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--finished")
    if path and not hasattr(config, "workerinput"):  # workers report to the process that asked
        config.pluginmanager.register(FinishedFiles(Path(path)))


class FinishedFiles:
    """Count the tests of each file, and write the file down when none is left."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._left: Counter[str] = Counter()
        self._passed: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()
        self._failed: defaultdict[str, list[str]] = defaultdict(list)
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Iterable[str]) -> None:
        if not self._left:  # every worker has the same, and one that replaces a dead one, too
            self._left = Counter(_file_of(name) for name in ids)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items:
            self._left = Counter(_file_of(item.nodeid) for item in session.items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = _file_of(report.nodeid)
        self._seconds[file] += report.duration
        if report.failed:
            self._failed[file].append(_without_group(report.nodeid))
        if report.skipped:
            self._skipped[file] += 1
        if report.when == "call" and report.passed:
            self._passed[file] += 1
        # A worker that died in a test reports that test once, with "???".
        if report.when not in ("setup", "call"):
            self._left[file] -= 1
            if self._left[file] == 0:
                self._write(file)

    def pytest_sessionfinish(self) -> None:
        """Write down files that a dead worker left unfinished: they have a failed test."""
        for file in self._failed:
            if self._left[file] > 0:
                self._write(file)

    def _write(self, file: str) -> None:
        row = {
            "file": file,
            "passed": self._passed[file],
            "skipped": self._skipped[file],
            "failed": self._failed[file],
            "seconds": round(self._seconds[file], 2),
        }
        with self._path.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(row) + "\n")


def _file_of(name: str) -> str:
    return name.partition("::")[0]


def _without_group(name: str) -> str:
    """Return a test's name without the group that xdist appends to it."""
    return re.sub(r"@[^\[\]]+$", "", name)
