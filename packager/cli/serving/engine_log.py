"""Finds the root cause in an engine's log: the first error, before its consequences.

An engine is several processes.  The one that fails says why, and then each that waits for it
says that it lost another; vLLM ends with "See root cause above".  So the first traceback counts
that is no such consequence, or what a parser of options says, and the last lines count least.

    vLLM     (EngineCore pid=24) ERROR 11-23 02:08:26 [core.py:946] Traceback …
    SGLang   [2026-03-03 03:53:36 TP3] Scheduler hit an exception: Traceback …
    LMI      [INFO ] PyProcess - W-222-0dc4f4-stdout: [1,0]<stdout>:Traceback …
    TGI      2023-12-16T09:36:24.632149Z ERROR text_generation_launcher: Shard 0 failed to start
             {"timestamp": …, "level": "ERROR", "fields": {"message": "…Traceback …"}}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from packager.core.documents import NotStrict, parse_object

_SUMMARY = 300  # characters
_FRAMES = 4  # traceback lines before the error: two calls with their source lines
_DETAILS = 6  # lines after it
_TRACEBACK = "Traceback (most recent call last):"

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_LEVELS = "DEBUG|INFO|WARN|WARNING|ERROR|FATAL|CRITICAL"
# Each pattern matches a prefix that an engine, a launcher or a logger adds to a line.
_PREFIXES = (
    re.compile(r"(?P<source>\([\w-]+ (?:[\w=]+ )*pid=\d+\)) ?"),
    re.compile(rf"(?P<level>{_LEVELS}) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] ?"),
    re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?P<source>[^\]]*)\] ?"),
    re.compile(rf"\[?(?:{_LEVELS}) *\]? *PyProcess(?: -)? (?P<source>W-[^:]*): ?"),
    re.compile(r"\[\d+,\d+\]<std(?:out|err)>:"),
    re.compile(
        rf"\d{{4}}-\d\d-\d\dT[\d:.]+Z +(?P<level>{_LEVELS}) (?P<source>(?:[\w-]+: )*[\w-]+): "
    ),
    re.compile(r"\[(?P<source>rank\d+)\]: ?"),
    re.compile(rf"\[(?P<level>{_LEVELS}) *\] "),
)

_ERROR = re.compile(r"[A-Za-z_][\w.]*(?:: .*)?")  # how the last line of a traceback begins
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
# Errors of a process whose peer failed.
_CONSEQUENCE = re.compile(
    r"root cause above|core initialization failed|WorkerProc initialization failed"
    r"|EngineDeadError|core proc\(s\)|ShardCannotStart|sigquit from a child"
    r"|^(?:SystemExit|KeyboardInterrupt|BrokenPipeError|ConnectionResetError|EOFError"
    r"|ConnectionRefusedError|(?:asyncio\.exceptions\.)?CancelledError)\b",
    re.IGNORECASE,
)
# Errors that end a program without a traceback.
_FATAL = re.compile(
    r"\S[^:]{0,80}: error: |error: |Fatal Python error|terminate called after"
    r"|(?:/\S*: )?(?:line \d+: )?exec: |Illegal instruction|nvidia-container-cli: "
)
_HARMLESS = frozenset(("DEBUG", "INFO", "WARN", "WARNING"))  # of tracebacks that were caught


@dataclass(frozen=True, slots=True, kw_only=True)
class LogError:
    """An error of a log: one line that names it, and the lines about it."""

    summary: str
    lines: tuple[str, ...]
    number: int  # of its first line in the log, from 1


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    text: str  # without its prefix
    source: str  # the process that wrote it; "" where unknown
    level: str


def first_error(log: str) -> LogError | None:
    """Return the error that the others in a log follow from; None where none is found."""
    lines = tuple(_lines(log))
    found = sorted(
        (*_tracebacks(lines), *_endings(lines)), key=lambda one: (one.number, -len(one.lines))
    )
    causes = [error for error in found if not _CONSEQUENCE.search(error.summary)]
    said = causes or list(_said_errors(lines))
    return next(iter(said or found), None)


def excerpt(log: str, *, tail: int) -> str:
    """Return the first error of a log and its last lines; a short log as it is."""
    lines = log.splitlines()
    error = first_error(log)
    if error is None or len(lines) <= tail:
        return "\n".join(lines[-tail:]) + ("\n" if lines else "")
    end = lines[-(tail // 2) :]
    return "\n".join(
        [
            f"the first error, line {error.number} of {len(lines)}:",
            *error.lines,
            f"the last {len(end)} lines:",
            *end,
            "",
        ]
    )


def _lines(log: str) -> Iterator[_Line]:
    for number, raw in enumerate(log.splitlines(), start=1):
        source = level = ""
        text = _ANSI.sub("", raw)
        if text.startswith("{") and (message := _json_message(text)) is not None:
            for part in message.splitlines() or [""]:
                yield _Line(number, part, "json", "")
            continue
        for prefix in _PREFIXES:
            if found := prefix.match(text):
                named = found.groupdict()
                source += named.get("source") or ""
                level = level or named.get("level") or ""
                text = text[found.end() :]
        yield _Line(number, text, source, level)


def _json_message(text: str) -> str | None:
    """Return the message of a line of TGI's, which writes JSON in SageMaker's image."""
    try:
        fields = parse_object(text.encode()).get("fields")
    except NotStrict:
        return None
    message = fields.get("message") if isinstance(fields, dict) else None
    return message if isinstance(message, str) else None


def _tracebacks(lines: Sequence[_Line]) -> Iterator[LogError]:
    """Yield the errors that end tracebacks; one that was logged as a warning was caught.

    Of a chain the last one counts, which the program ended with, unless it was only raised from
    another: then that one is the cause.
    """
    for index, line in enumerate(lines):
        if _TRACEBACK not in line.text or line.level in _HARMLESS:
            continue
        following = lines[index + 1 :]
        # SGLang and TGI name the process only in the first line.
        is_bare = bool(following) and following[0].text.startswith(" ")
        source = following[0].source if is_bare else line.source
        own = [one for one in following if one.source == source]
        error = _ending(line, own)
        if error is not None:
            yield error


def _ending(start: _Line, following: Sequence[_Line]) -> LogError | None:
    """Read a traceback from the line after its first to its error."""
    frames: list[str] = []
    for index, line in enumerate(following):
        text = line.text
        if text.strip() and not text[0].isspace():
            if not _ERROR.fullmatch(text.strip()):
                return None
            details = list(_details(following[index + 1 :]))
            if any(text.startswith(_CHAINED[0]) for text in details):
                return None  # the next traceback tells more
            details = [text for text in details if not text.startswith(_CHAINED)]
            named = [text.strip(), *(text.strip() for text in details[:1])]
            is_list = "validation error" in text  # pydantic names the reason below
            summary = " ".join(named[: 3 if is_list else 1])
            return LogError(
                summary=_cut(summary),
                lines=(*frames[-_FRAMES:], text.strip(), *details),
                number=start.number,
            )
        if text.strip():
            frames.append(text)
    return None


def _details(lines: Sequence[_Line]) -> Iterator[str]:
    """Yield what belongs to an error's message: until something else is logged."""
    for line in lines[:_DETAILS]:
        text = line.text
        if not text.strip() or _TRACEBACK in text:
            continue
        is_next = line.level in _HARMLESS or text.startswith(("INFO", "WARNING", "["))
        if is_next:
            return
        yield text.rstrip()
        if text.startswith(_CHAINED):
            return


def _endings(lines: Sequence[_Line]) -> Iterator[LogError]:
    """Yield what programs end with that write no traceback: parsers of options, the kernel."""
    for index, line in enumerate(lines):
        if _FATAL.match(line.text) and line.level not in _HARMLESS:
            more = [one.text for one in lines[index + 1 : index + 2] if _is_hint(one.text)]
            yield _said(line, more)


def _said_errors(lines: Iterable[_Line]) -> Iterator[LogError]:
    """Yield lines that are logged as errors."""
    for line in lines:
        is_error = line.level in ("ERROR", "FATAL", "CRITICAL") or line.text.startswith("Error: ")
        if is_error and line.text.strip() and not _CONSEQUENCE.search(line.text):
            yield _said(line, ())


def _is_hint(text: str) -> bool:
    return text.startswith("hint: ")


def _said(line: _Line, more: Iterable[str]) -> LogError:
    text = line.text.strip()
    return LogError(summary=_cut(text), lines=(text, *more), number=line.number)


def _cut(text: str) -> str:
    return text if len(text) <= _SUMMARY else f"{text[: _SUMMARY - 3]}..."
