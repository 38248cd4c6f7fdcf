"""Reads damaged documents by number, and says a line before and after each.

    python -m tests.faults.documents.worker FIRST STEP END [TARGET]

Document N is always the same: target, starting document and damage follow from N.
"""

from __future__ import annotations

import functools
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from types import FrameType

from tests.faults.documents.mutations import damage
from tests.faults.documents.targets import TARGETS, good_documents, is_typed, quiet_environment

LARGEST_RSS = 300_000_000  # bytes, of the whole process
LONGEST_CPU_S = 10  # for one document; a busy machine does not count
_ADDRESS_SPACE = 4 * 2**30  # so that a bomb ends this process and not the machine


class TooLong(BaseException):
    """A document took more processor time than any may."""


def document(number: int) -> tuple[str, bytes]:
    """Make document `number`: the name of its target, and its bytes."""
    name = list(TARGETS)[number % len(TARGETS)]
    chance = random.Random(f"{name} {number}")
    return name, damage(chance.choice(_good(name)), chance)


_good = functools.cache(good_documents)


def read(name: str, data: bytes) -> tuple[str, str]:
    """Read a document; say how that ended, and where it went wrong."""
    place = Path(tempfile.mkdtemp(prefix="one-"))
    signal.signal(signal.SIGVTALRM, _expire)
    signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST_CPU_S)
    _reset_peak()
    try:
        TARGETS[name].read(data, place)
        ended = "accepted", ""
    except TooLong:
        ended = "hang", traceback.format_exc()[-1500:]
    except BaseException as error:
        ended = ("refused", "") if is_typed(error) else ("untyped", traceback.format_exc()[-2500:])
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        shutil.rmtree(place, ignore_errors=True)
    peak = _peak()
    return ("memory", f"{peak} bytes") if peak > LARGEST_RSS else ended


def main(first: int, step: int, end: int, only: str = "") -> None:
    """Read every `step`th document from `first` to `end`."""
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
    out = sys.stdout
    sys.stdout = sys.stderr
    with tempfile.TemporaryDirectory(prefix="documents-") as home:
        tempfile.tempdir = home
        os.chdir(home)
        quiet_environment(Path(home))
        for number in range(first, end, step):
            name, data = document(number)
            if only not in ("", name):
                continue
            print(json.dumps({"begins": number, "target": name}), file=out, flush=True)
            ended, why = read(name, data)
            print(json.dumps({"number": number, "ended": ended, "why": why}), file=out, flush=True)
            if ended == "memory":
                return  # what was taken is not always given back: the next one starts afresh


def _expire(signum: int, frame: FrameType | None) -> None:
    raise TooLong


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), *sys.argv[4:])
