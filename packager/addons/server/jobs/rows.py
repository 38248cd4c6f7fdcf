"""Jobs as rows of the database, and lists of them page by page."""

from __future__ import annotations

import base64
import json
import sqlite3
from datetime import datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from packager.addons.server.jobs.errors import job_invalid, page_token_invalid
from packager.addons.server.jobs.values import (
    ENDED,
    BackgroundJob,
    JobPage,
    JobQuery,
    JobStatus,
    NewJob,
)
from packager.core.documents import shorten
from packager.core.files.sqlite import DatabaseBroken, between, time_of

if TYPE_CHECKING:
    from pydantic import TypeAdapter

VERSION = 1  # of the table
SCHEMA = """
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,  -- the order of the queue, whatever clocks say
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    asked TEXT NOT NULL,  -- the NewJob as JSON, without its files
    status TEXT NOT NULL,
    created INTEGER NOT NULL,  -- microseconds since 1970, as all times are
    modified INTEGER NOT NULL,
    started INTEGER,
    ended INTEGER,
    stage INTEGER NOT NULL DEFAULT 0,
    attempt INTEGER NOT NULL DEFAULT 0,
    failure TEXT NOT NULL DEFAULT '',
    UNIQUE (kind, name)
);
CREATE INDEX jobs_created ON jobs (created, number);
CREATE INDEX jobs_name ON jobs (name, number);
CREATE INDEX jobs_status ON jobs (status, number)"""
WHAT = "the database of jobs"
MOST_OF_A_PAGE = 1000
_MAX_TOKEN = 2048
_MAX_INTEGER = 2**63  # of SQLite
_MOST_REMEMBERED = 16 * 1024  # characters of a job's request


def job_of(row: sqlite3.Row, root: Path) -> BackgroundJob:
    """Return the job of a row; raises `DatabaseBroken` for a row that packager did not write.

    Clients that poll read the same rows again, so parsed rows are cached; long ones are not, which
    keeps the cache below 16 MiB of text.
    """
    return (_job_before if len(row["asked"]) <= _MOST_REMEMBERED else _parse_job)(row, root)


def _parse_job(row: sqlite3.Row, root: Path) -> BackgroundJob:
    try:
        return BackgroundJob(
            id=row["id"],
            asked=_new_jobs().validate_json(row["asked"]),
            status=row["status"],
            folder=root / row["id"],
            created=time_of(row["created"]),
            modified=time_of(row["modified"]),
            started=_time_or_none(row["started"]),
            ended=_time_or_none(row["ended"]),
            stage=row["stage"],
            attempt=row["attempt"],
            failure=row["failure"],
        )
    except (ValueError, TypeError, OverflowError) as error:  # pydantic's is a ValueError
        raise DatabaseBroken(WHAT, root, f"the row of job {row['id']!r} is damaged") from error


_job_before = lru_cache(maxsize=1024)(_parse_job)


def asked_text(new: NewJob) -> str:
    """Return a job's request as stored in a row, without files; raises `UsageError`."""
    try:
        return _new_jobs().dump_json(new, exclude={"files"}).decode()
    except ValueError as error:  # bytes of a command line, or of a directory's name
        raise job_invalid(
            f"job {shorten(new.name, 80)} has text that is not valid UTF-8",
            hint="name files and directories in UTF-8",
        ) from error


def list_page(connection: sqlite3.Connection, query: JobQuery, root: Path) -> JobPage:
    """Return one page of a list; raises `UsageError`."""
    where, values = _conditions(query)
    if query.after:
        value, number = _parse_token(query)
        sign = "<" if query.descending else ">"
        where.append(f"({query.sort_by}, number) {sign} (?, ?)")
        values += [value, number]
    direction = "DESC" if query.descending else "ASC"
    most = max(1, min(query.most, MOST_OF_A_PAGE))
    rows = connection.execute(
        f"SELECT * FROM jobs {'WHERE ' if where else ''}{' AND '.join(where)} "
        f"ORDER BY {query.sort_by} {direction}, number {direction} LIMIT ?",
        (*values, most + 1),
    ).fetchall()
    jobs = tuple(job_of(row, root) for row in rows[:most])
    return JobPage(jobs, _token(query, rows[most - 1]) if len(rows) > most else "")


def _conditions(query: JobQuery) -> tuple[list[str], list[Any]]:
    where: list[str] = []
    values: list[Any] = []
    if query.kind is not None:
        # Jobs that have not ended are few among very many: the plus keeps SQLite from finding all
        # of a kind first, instead of those of a status.
        few = query.statuses and not query.statuses & ENDED
        where.append("+kind = ?" if few else "kind = ?")
        values.append(query.kind)
    if query.name_contains:
        where.append("instr(name, ?)")
        values.append(query.name_contains)
    if query.statuses:
        where.append(f"status IN ({', '.join('?' * len(query.statuses))})")
        values += sorted(query.statuses)
    for conditions, bounds in (
        between("created", query.created_after, query.created_before),
        between("modified", query.modified_after, query.modified_before),
    ):
        where += conditions
        values += bounds
    return where, values


def unfinished(connection: sqlite3.Connection, root: Path) -> list[BackgroundJob]:
    """Return the jobs that have not ended, the oldest first."""
    # A positive condition, because only that uses the index.
    alive = sorted({*get_args(JobStatus)} - ENDED)
    rows = connection.execute(
        f"SELECT * FROM jobs WHERE status IN ({', '.join('?' * len(alive))}) ORDER BY number",
        alive,
    ).fetchall()
    return [job_of(row, root) for row in rows]


def _token(query: JobQuery, last: sqlite3.Row) -> str:
    """Return the token of the next page; it stays valid when jobs come and go."""
    parts = [query.sort_by, query.descending, last[query.sort_by], last["number"]]
    return base64.urlsafe_b64encode(json.dumps(parts, separators=(",", ":")).encode()).decode()


def _parse_token(query: JobQuery) -> tuple[str | int, int]:
    try:
        if len(query.after) > _MAX_TOKEN:
            raise ValueError("too long")
        parts = json.loads(base64.b64decode(query.after.encode(), altchars=b"-_", validate=True))
        sort_by, descending, value, number = parts
        str(value).encode()  # half of a surrogate pair is not valid text
    except (ValueError, TypeError, RecursionError) as error:
        raise page_token_invalid() from error
    kind = int if query.sort_by == "created" else str
    if [sort_by, descending] != [query.sort_by, query.descending] or type(value) is not kind:
        raise page_token_invalid()
    if type(number) is not int or not 0 <= number < _MAX_INTEGER:
        raise page_token_invalid()
    if isinstance(value, int) and not 0 <= value < _MAX_INTEGER:
        raise page_token_invalid()
    return value, number


def _time_or_none(value: int | None) -> datetime | None:
    return None if value is None else time_of(value)


@cache
def _new_jobs() -> TypeAdapter[NewJob]:
    from pydantic import TypeAdapter

    return TypeAdapter(NewJob)
