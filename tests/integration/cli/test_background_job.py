"""The tests as a shell's background job, which ignores SIGINT and so do its children."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.places import ROOT


@pytest.mark.parametrize(
    "test",
    [
        "tests/integration/images/test_embedded.py",
        "tests/integration/steps/test_local_executor.py::test_no_process_is_left_however_packager_ends[2]",
    ],
    ids=["to-itself", "to-a-child"],
)
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
