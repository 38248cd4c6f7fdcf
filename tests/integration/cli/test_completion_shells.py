"""bash, zsh and fish complete a line that is typed at their prompts, and run what was meant.

`packager` is a script that completes as the real one does and writes down what it is run with.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import need
from tests.support.cases import read_tables
from tests.support.places import ROOT
from tests.support.processes import run_program

pytestmark = pytest.mark.extended

LONGEST_S = 60
PROMPT = "ASK> "
SCRIPTS_OF_SHELLS = ROOT / "templates" / "completion"
SHELLS: dict[str, dict[str, Any]] = read_tables(__file__)


class Terminal:
    """An interactive shell on a terminal of its own."""

    def __init__(self, arguments: list[str], environment: dict[str, str], place: Path) -> None:
        self._own, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))
        self._process = subprocess.Popen(
            arguments,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=place,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self.seen = ""

    def type(self, keys: str) -> None:
        os.write(self._own, keys.encode())

    def read(self, timeout_s: float) -> None:
        """Read what comes within the time; answer those who ask what the terminal can do."""
        if select.select([self._own], [], [], timeout_s)[0]:
            new = os.read(self._own, 65536).decode(errors="replace")
            self.seen += new
            if "\x1b[c" in new or "\x1b[0c" in new:
                self.type("\x1b[?1;2c")

    def read_until(self, text: str) -> None:
        end = time.monotonic() + LONGEST_S
        while not re.search(text, self.seen):
            assert time.monotonic() < end, f"no {text!r} in {self.seen!r}"
            self.read(0.5)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._own)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Make a directory with what is completed, and a `packager` that notes its arguments."""
    for name in ("models/my model", "models/other", "layouts/out", "bin", "home/installed"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "models/my model/config.json").touch()
    script = (SCRIPTS_OF_SHELLS / "packager.zsh").read_text()
    (tmp_path / "home/installed/_packager").write_text(script)
    program = tmp_path / "bin/packager"
    program.write_text(
        "#!/bin/sh\n"
        f'[ -n "$_PACKAGER_COMPLETE" ] && exec {sys.executable} -m packager "$@"\n'
        f'[ "$1" = completion ] && exec cat \'{ROOT}/templates/completion/packager.\'"$2"\n'
        f"printf '%s\\n' \"$@\" >'{tmp_path}/run.new'\n"
        f"mv '{tmp_path}/run.new' '{tmp_path}/run'\n"
    )
    program.chmod(0o755)
    return tmp_path


@pytest.fixture(params=["bash", "zsh", "zsh installed", "fish"])
def shell(request: pytest.FixtureRequest, place: Path) -> Iterator[Terminal]:
    name = request.param
    begin = SHELLS[name]["begin"].replace("{prompt}", PROMPT)
    environment = {
        "HOME": str(place / "home"),
        "LANG": "C.UTF-8",
        "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "TERM": "xterm",
    }
    terminal = Terminal(
        [need(name.partition(" ")[0]), *SHELLS[name]["options"]], environment, place
    )
    try:
        terminal.type(f"{begin}; echo RE''ADY\r")
        terminal.read_until(r"READY\s(?s:.*)ASK> ")
        yield terminal
    finally:
        terminal.close()


def test_a_line_is_completed_at_the_prompt(shell: Terminal, place: Path) -> None:
    shell.type(SHELLS["typed"]["keys"])

    end = time.monotonic() + LONGEST_S
    while not (place / "run").exists():
        assert time.monotonic() < end, shell.seen
        shell.read(0.2)
    assert (place / "run").read_text().splitlines() == SHELLS["typed"]["run"]
    assert "Traceback" not in shell.seen


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_a_script_is_right_for_its_shell(name: str) -> None:
    script = SCRIPTS_OF_SHELLS / f"packager.{name}"

    assert run_program(need(name), "-n", script).stderr == ""
