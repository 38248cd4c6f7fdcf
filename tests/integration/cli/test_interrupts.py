"""Interrupts that come where Python swallows exceptions end a command all the same.

Each case is a process of its own that sends itself a real signal while something goes away.
"""

from __future__ import annotations

import pytest

from tests.support.cases import read_tables
from tests.support.processes import run_python

CASES = [pytest.param(row["case"], id=row["id"]) for row in read_tables(__file__)["cases"]]

_AROUND = """
import gc, io, signal, sys, time, weakref
from packager.cli import interrupts

def hit():
    signal.raise_signal(signal.{signal})
    for _ in range(100):
        pass  # the handler runs here

{case}

interrupts.install()
try:
    go()
    for _ in range(300):
        time.sleep(0.01)
except KeyboardInterrupt:
    sys.exit(130)
sys.exit(7)
"""


def ended(case: str, status: int, name: str = "SIGINT") -> str:
    """Run a case, which ends with a status; return its stderr."""
    program = _AROUND.format(case=case, signal=name)
    return run_python("-c", program, status=status, timeout_s=100).stderr


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("case", CASES)
def test_an_interrupt_ends_what_goes_on_wherever_it_comes(case: str, name: str) -> None:
    assert ended(case, 130, name) == ""


def test_what_else_is_lost_is_told_as_before() -> None:
    case = "class Thing:\n    def __del__(self): 1 / 0\ndef go():\n    Thing()\n    hit()"

    assert "ZeroDivisionError" in ended(case, 130)


def test_an_ignored_interrupt_stays_ignored() -> None:
    """As in a background job of a shell without job control."""
    case = "signal.signal(signal.SIGINT, signal.SIG_IGN)\ndef go():\n    hit()\n    sys.exit(0)"

    ended(case, 0)
