"""Errors of steps.

StepFailed            the tool did not finish; the end of its log is in the message
├── StepRejected      the tool refuses these inputs, and would again
├── StepOutOfMemory   a machine with more memory may do it
├── StepDiskFull      the disk is full; what was finished is kept, where the step keeps work
├── StepTimedOut      it ran too long, or said nothing for too long
├── StepBroken        it broke the worker's protocol
└── StepTooLarge      refused before it started: the machine has not what it needs
"""

from __future__ import annotations

from pathlib import Path

from packager.core.errors import StepFailed as StepFailed
from packager.core.recipe import Step

LOG_TAIL_BYTES = 4000
DISK_FULL = ("No space left on device", "Disk quota exceeded")


class StepRejected(StepFailed):
    """The tool refuses these inputs. A retry would fail again."""

    permanent = True


class StepOutOfMemory(StepFailed):
    """The tool ran out of memory, as itself or the kernel reports."""


class StepDiskFull(StepFailed):
    """The tool found no space left to write."""


class StepTimedOut(StepFailed):
    """The tool was ended because it took too long or did not report."""


class StepBroken(StepFailed):
    """The tool violated the worker's protocol; its results are discarded."""

    permanent = True


class StepTooLarge(StepFailed):
    """The step needs more than the machine has."""

    permanent = True


def failed(
    kind: type[StepFailed], step: Step, reason: str, log: Path | None, *, hint: str = ""
) -> StepFailed:
    """Return a failure whose message ends with the log's last lines and the log's path."""
    tail = read_tail(log) if log else ""
    if not hint and any(words in tail or words in reason for words in DISK_FULL):
        hint = "free some space, or put the cache elsewhere with --cache-dir"
    if not hint and tail:
        hint = f"all of the log is in {log}"
    return kind(f"step {step.name!r} {reason}", hint=hint, log=tail)


def read_tail(log: Path) -> str:
    """Return the last lines of a log."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - LOG_TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    if size > LOG_TAIL_BYTES:
        text = text.partition("\n")[2] or text
    return text.strip()
