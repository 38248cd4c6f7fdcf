"""Thousands of damaged documents: read or refused, in seconds, in little memory."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.faults.counters import never, tried
from tests.faults.documents.targets import TARGETS
from tests.faults.documents.worker import LONGEST_CPU_S
from tests.faults.scale import LONG
from tests.support.places import ROOT

PARTS = 2  # so that processes can share them; each makes all documents to start from
A_PART = (3000 if LONG else 78) * len(TARGETS) // PARTS
A_PROCESS = 2000  # documents: memory of one must not be that of thousands before it
_LONGEST_WAIT_S = 300.0  # without a word, however busy the machine is
_SHOWN = 5


@pytest.mark.timeout(36_000 if LONG else 600)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_damaged_document_is_read_or_refused_soon_and_in_little_memory(
    part: int, tmp_path: Path
) -> None:
    ended, bad = read_all(part * A_PART, (part + 1) * A_PART, tmp_path)

    tried(sum(ended.values()))
    assert sum(ended.values()) == A_PART
    for what, counted in (
        ("untyped", "untyped_failures"),
        ("hang", "hangs"),
        ("memory", "too_much_memory"),
    ):
        with never(counted):
            assert [one for one in bad if one["ended"] == what] == []
    assert ended["refused"] > A_PART // 10
    assert ended["accepted"] > A_PART // 10


def read_all(first: int, end: int, scratch: Path) -> tuple[Counter[str], list[dict[str, Any]]]:
    """Read documents in processes of their own, a new one after each that had to be ended."""
    ended: Counter[str] = Counter()
    bad: list[dict[str, Any]] = []
    while first < end:
        number, why = first, ""
        with (scratch / "stderr").open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.documents.worker"]
                + [str(first), "1", str(min(end, first + A_PROCESS))],
                cwd=ROOT,
                env={**os.environ, "TMPDIR": str(scratch), "PYTHONPATH": str(ROOT)},
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
        try:
            for said in _lines(process):
                if "begins" in said:
                    number = said["begins"]
                    continue
                first = said["number"] + 1
                ended[said["ended"]] += 1
                if said["ended"] not in ("accepted", "refused"):
                    bad.append(said)
        except TimeoutError:
            why = "hang"
        finally:
            process.kill()
            process.wait()
        if first <= number < end:  # it went down with this one
            why = why or "untyped"
            ended[why] += 1
            last = (scratch / "stderr").read_bytes()[-1500:].decode(errors="replace")
            bad.append({"number": number, "ended": why, "why": last})
            first = number + 1
    return ended, bad[:_SHOWN]


def _lines(process: subprocess.Popen[bytes]) -> Any:
    """Yield what a worker says; raise `TimeoutError` when it says nothing for too long."""
    assert process.stdout is not None
    said = b""
    with selectors.DefaultSelector() as ready:
        ready.register(process.stdout, selectors.EVENT_READ)
        since, used_s = time.monotonic(), _cpu_s(process.pid)
        while True:
            if ready.select(1.0):
                piece = os.read(process.stdout.fileno(), 65536)
                if not piece:
                    return
                *lines, said = (said + piece).split(b"\n")
                yield from map(json.loads, lines)
                since, used_s = time.monotonic(), _cpu_s(process.pid)
            elif (
                _cpu_s(process.pid) - used_s > 3 * LONGEST_CPU_S
                or time.monotonic() - since > _LONGEST_WAIT_S
            ):
                raise TimeoutError


def _cpu_s(pid: int) -> float:
    """How many seconds of processor time a process has had."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
