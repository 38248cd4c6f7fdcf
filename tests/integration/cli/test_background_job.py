"""The tests as a shell's background job, which ignores SIGINT and so do its children."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.cases import cases_of
from tests.support.places import ROOT

pytestmark = pytest.mark.extended

cases = cases_of(__file__)


@cases("tests_that_interrupt_pass_where_sigint_is_ignored")
def test_tests_that_interrupt_pass_where_sigint_is_ignored(test: str) -> None:
    ignoring = 'trap "" INT; exec "$@"'
    pytest_alone = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]

    done = subprocess.run(
        ["sh", "-c", ignoring, "sh", *pytest_alone],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
