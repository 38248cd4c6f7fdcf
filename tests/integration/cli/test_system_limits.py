"""What the system refuses a command ends it with a status and a reason, and never as a bug."""

from __future__ import annotations

import errno
import sqlite3
import sys
from pathlib import Path

import pytest
import requests
from docker.errors import APIError

from packager.cli.unforeseen import explain_unforeseen
from tests.support.commandline import TINY
from tests.support.processes import run_program

COMMAND = f"{sys.executable} -m packager"
BUILD = f"{COMMAND} build --model {TINY} --instance local --base scratch --output oci:out"
TUNE = f"{COMMAND} tune --model {TINY} --instance local --goal throughput "


@pytest.mark.parametrize(
    ("line", "status", "reason"),
    [
        (f"{COMMAND} list families > /dev/full", 74, "no space is left"),
        (f"{COMMAND} list families >&-", 74, "it is closed"),
        pytest.param(f"{COMMAND} list families 2>&-", 0, "", id="stderr is closed"),
        (f"{COMMAND} list families > /dev/full 2>&1", 74, ""),
        (f"{COMMAND} list familie >&- 2> /dev/full", 2, ""),
        (f"{COMMAND} plan --catalog ''", 2, "is no path"),
        (f"head -c 99 /dev/urandom | {COMMAND} claims import -", 2, "the claim key"),
        (f"{COMMAND} cache trust /dev/zero", 2, "is larger than"),
        (f"mkdir d; cd d; rmdir ../d; {BUILD}", 66, "the working directory is gone"),
        pytest.param(f"ulimit -n 10; {BUILD}", 71, "open files", marks=pytest.mark.extended),
        pytest.param(f"ulimit -v 110000; {BUILD}", 71, "memory", marks=pytest.mark.extended),
        pytest.param(TUNE + "--data $'d\\xff'", 2, "is not UTF-8", marks=pytest.mark.extended),
        pytest.param(
            "mkdir $'m\\xff'; cd $'m\\xff'; " + BUILD, 2, "is not UTF-8", marks=pytest.mark.extended
        ),
    ],
)
def test_a_limit_of_the_system_is_told(line: str, status: int, reason: str, tmp_path: Path) -> None:
    done = run_program("bash", "-c", line, cwd=tmp_path, status=status)

    assert reason in done.stderr


def refused(status: int) -> requests.Response:
    response = requests.Response()
    response.status_code = status
    return response


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (OSError(errno.EFBIG, "x"), 74),
        (PermissionError(errno.EPERM, "x", "/some/file"), 74),
        (ConnectionResetError(errno.ECONNRESET, "x"), 69),
        (sqlite3.OperationalError("disk I/O error"), 74),
        (ModuleNotFoundError("no module"), 69),
        (APIError("500", explanation="no space"), 69),
        (APIError("403", refused(403), "authorization denied by plugin"), 77),
        (requests.ConnectionError("reset"), 69),
        (ValueError("x"), 70),
    ],
)
def test_what_nobody_caught_is_a_bug_only_where_it_is_ours(error: Exception, status: int) -> None:
    assert explain_unforeseen(error).exit_code == status
