"""What a unit test may not do fails it, wherever it is done."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable

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
