"""Tests that share a server run in one process, with the pytest and xdist that are installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT

pytestmark = pytest.mark.extended

CONFTEST = """
import pytest

from tests.conftest import pytest_collection_modifyitems


@pytest.fixture
def docker_host():
    return None
"""
TESTS = """
import os
import pathlib
import time

import pytest


def noted(name):
    place = pathlib.Path(__file__).with_name(f"{name}-{os.getpid()}")
    place.touch()
    time.sleep(0.2)  # a second process would take the next one


@pytest.mark.parametrize("number", range(8))
def test_marked_by_a_hook(number, docker_host):
    noted("hook")


@pytest.mark.xdist_group("file")
@pytest.mark.parametrize("number", range(8))
def test_marked_where_it_stands(number):
    noted("mark")


@pytest.mark.parametrize("number", range(8))
def test_of_a_file(number):
    noted("file")
"""


def test_tests_of_one_group_run_in_one_process(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_groups.py").write_text(TESTS)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout
    assert "24 passed" in done.stdout
    for name in ("hook", "mark", "file"):
        assert len(list(tmp_path.glob(f"{name}-*"))) == 1
