"""Reads what a stage's command writes to stderr: log lines, events, and its error.

Its output goes to a file, so that it can be read by a runner that did not start it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from packager.core.documents import NotStrict, parse_object
from packager.core.text import escape, hide_userinfo, quoted_lines

MOST_LOG_BYTES = 64 * 1024 * 1024
_MOST_LINE = 64 * 1024
_CHUNK = 256 * 1024
_MAX_ERROR = 4 * 1024 * 1024


class Tail:
    """Whole lines of a file that grows, from a place on."""

    def __init__(self, path: Path, begin: int) -> None:
        self._path = path
        self.read = begin  # bytes consumed

    def lines(self, *, last: bool = False) -> Iterator[str]:
        """Yield the complete lines; with `last` also one without an end."""
        with suppress(FileNotFoundError), self._path.open("rb") as file:
            file.seek(self.read)
            while chunk := file.read(_CHUNK):
                end = chunk.rfind(b"\n") + 1
                if not end and (last or len(chunk) >= _MOST_LINE):
                    end = len(chunk)
                if not end:
                    return
                self.read += end
                file.seek(self.read)
                for line in chunk[:end].removesuffix(b"\n").split(b"\n"):
                    yield line.decode("utf-8", "replace")


class Interpreter:
    """Separates events and the final error of a command from what else it prints."""

    def __init__(self) -> None:
        self.error: Mapping[str, Any] | None = None
        self._open: list[str] | None = None  # lines of an object that has begun
        self._open_size = 0  # characters of them

    def take(self, line: str) -> tuple[list[str], Mapping[str, Any] | None]:
        """Return lines for the log and the event of a line, where it is one."""
        if self._open is not None:
            return self._go_on(line), None
        if line == "{":
            self._open, self._open_size = [line], len(line)
            return [], None
        if line.startswith('{"event"') and (event := _object(line)) is not None:
            return event_lines(event), event
        return [line], None

    def rest(self) -> list[str]:
        """Return lines of an object that never ended."""
        lines, self._open = self._open or [], None
        return lines

    def _go_on(self, line: str) -> list[str]:
        assert self._open is not None
        self._open.append(line)
        self._open_size += len(line) + 1
        if line != "}":
            return self.rest() if self._open_size > _MAX_ERROR else []
        lines = self.rest()
        document = _object("\n".join(lines))
        if document is None or not isinstance(document.get("message"), str):
            return lines
        self.error = document
        return error_lines(document)


class Log:
    """The log of a job; the disk may be full, and the job runs on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_full = False

    def write(self, at: datetime, stage: str, lines: list[str]) -> None:
        """Append lines, each with the time and the stage's name."""
        if not lines or self._is_full:
            return
        moment = f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z"
        text = "".join(f"{moment} {stage} {escape(hide_userinfo(line))}\n" for line in lines)
        with suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            with os.fdopen(os.open(self._path, flags, 0o600), "ab") as file:
                if file.tell() > MOST_LOG_BYTES:
                    self._is_full = True
                    text = f"{moment} job the log is full; the rest is left out\n"
                file.write(text.encode("utf-8", "backslashreplace"))


def failure_text(error: Mapping[str, Any] | None, stage: str, status: int) -> str:
    """Return why a stage failed, in a sentence."""
    if error is None:
        return f"stage {stage!r} ended with status {status}; its log says more"
    text = escape(hide_userinfo(str(error["message"])))
    hint = error.get("hint")
    return (
        f"{text} (hint: {escape(hide_userinfo(hint))})" if isinstance(hint, str) and hint else text
    )


def event_lines(event: Mapping[str, Any]) -> list[str]:
    """Return the log lines of an event: steps that begin and end."""
    match event:
        case {"event": "step", "step": str(step), "state": "started", "detail": str(detail)}:
            return [f"{step}: {detail}, begun" if detail else f"{step}: begun"]
        case {
            "event": "step",
            "step": str(step),
            "state": "finished",
            "detail": str(detail),
            "seconds": int(seconds) | float(seconds),
        }:
            return [f"{step}: {detail + ', ' if detail else ''}{seconds:.1f} s"]
    return []


def error_lines(error: Mapping[str, Any]) -> list[str]:
    """Return the log lines of an error, as shown to people."""
    log, findings, hint = (error.get(name) for name in ("log", "findings", "hint"))
    lines = quoted_lines(log) if isinstance(log, str) else []
    for found in findings if isinstance(findings, list) else ():
        if isinstance(found, dict):
            lines.append(f"{found.get('severity')} {found.get('code')}: {found.get('message')}")
    lines.append(f"error: {error['message']}")
    return [*lines, f"hint: {hint}"] if isinstance(hint, str) and hint else lines


def _object(text: str) -> dict[str, Any] | None:
    try:
        return parse_object(text.encode())
    except (NotStrict, UnicodeEncodeError):
        return None
