"""Run every benchmark, one after the other, and print one table of targets and figures.

    python benchmarks/all.py [NAME ...] [--data DIR] [--json FILE] [--list]

Each benchmark says in the last line of its stdout, one JSON object, what it held against which
target (`judging`).  A target that was missed is a row; so is a benchmark that failed or said
nothing.  What it prints besides goes to stderr, as it comes.  After every benchmark the table so
far is written (`--json`), so that a run that is killed leaves what was measured; SIGTERM and
Ctrl-C print it.

Those that compare predictions with published measurements need a copy of these (`--data DIR`,
see `speed_data`): without it their row says that they were not run, which is no failure.

Ends with status 1 where a target was missed or a benchmark failed, 130 when interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

HERE = Path(__file__).resolve().parent

# The short ones first: a run that is cut off has told most of them.
BENCHMARKS = (
    *("memory", "plan", "load_client", "serve", "capture", "predict", "calibrate"),
    *("load_against_vllm", "cold_start", "first_token", "warm", "cache", "push"),
    *("tune", "quantize", "stream", "drafts"),
)
NEEDS_DATA = frozenset(("predict", "calibrate"))
NOTHING = "–"
_LAST_S = 20.0  # that an interrupted benchmark gets to stop its servers


@dataclass(frozen=True)
class Row:
    """One target of one benchmark."""

    benchmark: str
    target: str
    figure: str
    met: bool | None  # None: it was not run
    seconds: float = 0.0  # of the whole benchmark


class Interrupted(Exception):
    """Somebody ended the run."""


class Interrupts:
    """SIGTERM and Ctrl-C, as `Interrupted`; one that comes while a process starts waits for it.

    A process that was started and not yet returned is nobody's: who is interrupted there could not
    end it.
    """

    def __init__(self) -> None:
        self._waits = False
        self._came = False

    def install(self) -> None:
        """Handle SIGTERM and SIGINT; SIGINT stays ignored where it is, as in a background job."""
        signal.signal(signal.SIGTERM, self._take)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._take)

    def hold(self) -> None:
        """Note an interrupt, from now on, and raise nothing."""
        self._waits = True

    def let(self) -> None:
        """Raise `Interrupted` if one came meanwhile, and on every one that comes."""
        self._waits = False
        if self._came:
            raise Interrupted

    def _take(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._came = True
        if not self._waits:
            raise Interrupted


INTERRUPTS = Interrupts()


def main(arguments: Sequence[str]) -> int:
    """Run and print; return the exit status."""
    asked = _parser().parse_args(arguments)
    if asked.list:
        print("\n".join(BENCHMARKS))
        return 0
    place = Path(asked.folder)
    names = asked.names or [name for name in BENCHMARKS if (place / f"{name}.py").exists()]
    INTERRUPTS.install()
    rows: list[Row] = []
    status = 0
    try:
        for name in names:
            rows += run(name, place, asked.data)
            write(rows, asked.json, finished=False)
    except Interrupted:
        status = 130
    print_table(rows)
    write(rows, asked.json, finished=status == 0)
    missed = any(row.met is False for row in rows)
    summary = {"rows": [asdict(row) for row in rows], "finished": status == 0}
    print(json.dumps({**summary, "targets_met": not missed and status == 0}))
    return status or int(missed)


def run(name: str, place: Path, data: str) -> list[Row]:
    """Run one benchmark; return its rows, one that says why where it told nothing."""
    script = place / f"{name}.py"
    if not script.is_file():
        return [Row(name, "it is there", f"no benchmark {name!r}", met=False)]
    command = [sys.executable, str(script)]
    if name in NEEDS_DATA:
        if not data:
            return [Row(name, NOTHING, "not run: needs --data DIR", met=None)]
        command += ["--data", data]
    print(f"== {name}", file=sys.stderr, flush=True)
    began = time.monotonic()
    last = ""
    INTERRUPTS.hold()
    # Its own group: an interrupt of ours reaches it once, from us, and we wait for its end.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, errors="replace", start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            INTERRUPTS.let()
            for line in process.stdout:
                if last:
                    print(last, end="", file=sys.stderr, flush=True)
                last = line
            status = process.wait()
        except Interrupted:
            end(process)
            raise
    return rows_of(name, status, last, round(time.monotonic() - began, 1))


def end(process: subprocess.Popen[str]) -> None:
    """Interrupt a benchmark as Ctrl-C does; kill it where it does not stop its servers in time."""
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(_LAST_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def rows_of(name: str, status: int, last: str, seconds: float) -> list[Row]:
    """Read what a benchmark said at last."""
    found = _object(last)
    told = found.get("compared")
    if not isinstance(told, list) or not isinstance(found.get("targets_met"), bool):
        why = f"ended with status {status}" + ("" if status else " and named no target")
        return [Row(name, "ends with its figures", why, met=False, seconds=seconds)]
    rows = [
        Row(
            name,
            f"{one.get('name')} {one.get('target')}",
            _shown(one.get("figure")),
            met=one.get("met") is True,
            seconds=seconds,
        )
        for one in told
        if isinstance(one, dict)
    ]
    if status and all(row.met for row in rows):
        rows.append(Row(name, "status 0", f"status {status}", met=False, seconds=seconds))
    return rows


def print_table(rows: Sequence[Row]) -> None:
    """Print the rows, aligned, and how many were missed."""
    words = {True: "met", False: "MISSED", None: NOTHING}
    cells = [("benchmark", "target", "figure", "met")]
    cells += [(row.benchmark, row.target, row.figure, words[row.met]) for row in rows]
    widths = [max(len(row[at]) for row in cells) for at in range(4)]
    for row in cells:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
    judged = [row for row in rows if row.met is not None]
    print(f"{sum(bool(row.met) for row in judged)} of {len(judged)} targets met")


def write(rows: Sequence[Row], place: str, *, finished: bool) -> None:
    """Write the rows so far to a file, whole or not at all."""
    if not place:
        return
    missed = [row.benchmark for row in rows if row.met is False]
    document: dict[str, Any] = {
        "rows": [asdict(row) for row in rows],
        "finished": finished,
        "targets_met": finished and not missed,
    }
    path = Path(place)
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    beside.replace(path)


def _object(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _shown(figure: object) -> str:
    if isinstance(figure, bool):
        return "yes" if figure else "no"
    if isinstance(figure, int | float):
        return f"{figure:.4g}" if abs(figure) < 1e4 else f"{figure:,.0f}"
    return "not measured"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="by default all")
    parser.add_argument("--data", default="", help="a copy of the published measurements")
    parser.add_argument("--json", default="", metavar="FILE", help="write the table there, too")
    parser.add_argument("--list", action="store_true", help="print the names")
    parser.add_argument("--folder", default=str(HERE), help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
