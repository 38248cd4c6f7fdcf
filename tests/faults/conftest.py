"""Time limits that a test can wait for, a small disk, and the count of what must never happen."""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from packager.images import registry
from tests.faults.counters import NEVER, TRIES
from tests.support import disks

_RUN = {"tests": 0, "failed": 0}


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Set after how many seconds without a word a registry is given up, whatever it was asked."""
    modules = [
        importlib.import_module(f"{registry.__name__}.{found.name}")
        for found in pkgutil.iter_modules(registry.__path__)
    ]

    def set_to(seconds: float) -> None:
        for module in modules:
            for name in vars(module):
                if name.endswith("TIMEOUT_S") and "CONNECT" not in name:
                    monkeypatch.setattr(module, name, seconds)

    set_to(60.0)  # a busy machine is not a broken line
    return set_to


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    with disks.small_disk(tmp_path / "disk") as disk:
        yield disk


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count tests and failures of any kind."""
    if "tests/faults/" in report.nodeid:
        _RUN["tests"] += report.when == "call" and not report.skipped
        _RUN["failed"] += report.failed


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let no run pass in which something happened that must never happen."""
    if any(NEVER.values()):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_unconfigure() -> None:
    """Say, as the last line of a run, what it found."""
    if _RUN["tests"]:
        sys.stdout.write(json.dumps({**_RUN, **TRIES, **NEVER}) + "\n")
