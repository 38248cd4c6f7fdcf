"""What the system refuses a command ends it with a status and a reason, and never as a bug."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commandline import TINY

COMMAND = f"{sys.executable} -m packager"
BUILD = f"{COMMAND} build --model {TINY} --instance local --base scratch --output oci:out"


@pytest.mark.parametrize(
    ("line", "status", "reason"),
    [
        (f"{COMMAND} list families > /dev/full", 74, "no space is left"),
        (f"{COMMAND} list families >&-", 74, "it is closed"),
        pytest.param(f"{COMMAND} list families 2>&-", 0, "", id="stderr is closed"),
        pytest.param(f"ulimit -n 10; {BUILD}", 71, "open files", marks=pytest.mark.extended),
        pytest.param(f"ulimit -v 110000; {BUILD}", 71, "memory", marks=pytest.mark.extended),
        pytest.param(
            "mkdir $'m\\xff'; cd $'m\\xff'; " + BUILD, 2, "is not UTF-8", marks=pytest.mark.extended
        ),
    ],
)
def test_a_limit_of_the_system_is_told(line: str, status: int, reason: str, tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, env=os.environ, capture_output=True, text=True
    )

    assert done.returncode == status, done.stderr
    assert reason in done.stderr
