"""What a unit test may not do fails it, wherever it is done."""

from __future__ import annotations

import contextlib
import importlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.purity import pure

FORBIDDEN: dict[str, Callable[[], object]] = {
    "sleeps": lambda: time.sleep(0.001),
    "opens a socket": socket.socketpair,
    "starts a process": lambda: subprocess.run([sys.executable, "--version"], check=True),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_what_costs_is_refused(what: str) -> None:
    with pytest.raises(pytest.fail.Exception, match=f"unit {what}"), pure():
        FORBIDDEN[what]()


def test_a_thread_does_not_hide_it() -> None:
    def quietly() -> None:
        with contextlib.suppress(BaseException):
            time.sleep(0.001)

    with pytest.raises(pytest.fail.Exception, match="unit sleeps"), pure():
        thread = threading.Thread(target=quietly)
        thread.start()
        thread.join()


def test_an_import_may_do_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "opens_a_socket.py").write_text("import socket\nsocket.socket().close()\n")
    monkeypatch.syspath_prepend(tmp_path)

    with pure():
        importlib.import_module("opens_a_socket")


def test_tests_elsewhere_may_do_all_of_it() -> None:
    with pure():
        pass

    for allowed in FORBIDDEN.values():
        allowed()
