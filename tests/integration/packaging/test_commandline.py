"""Commands in forks of a preloaded process are what commands of a new interpreter are."""

from __future__ import annotations

import socket
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.cases import cases_of
from tests.support.commandline import TINY, packager_in
from tests.support.processes import run_python

cases = cases_of(__file__)

pytestmark = pytest.mark.extended


@cases("commands")
def test_a_fork_ends_as_a_new_interpreter_does(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "examples").symlink_to(TINY.parent)
    new = run_python("-m", "packager", *arguments, cwd=tmp_path, status=None)

    forked = packager_in(tmp_path)(*arguments)

    assert (forked.status, forked.out, forked.err) == (new.returncode, new.stdout, new.stderr)


def test_a_command_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    """It asks a registry that never answers, which sees the connection end."""
    with socket.create_server(("127.0.0.1", 0)) as registry:
        address = "{}:{}".format(*registry.getsockname())
        command = ("inspect", f"{address}/one:two", "--insecure-registry", address)
        registry.setblocking(False)
        for timeout_s in (0.2, 5, 20, 80):  # on a busy machine it may not have asked so soon
            with pytest.raises(subprocess.TimeoutExpired):
                packager_in(tmp_path, timeout_s=timeout_s)(*command)
            with suppress(BlockingIOError):
                asking, _ = registry.accept()
                break
        with asking:
            asking.settimeout(120)
            while asking.recv(10_000):
                pass
