"""Resources other than jobs: models, endpoints and their configurations, in SQLite (WAL).

Every change is one transaction that is on disk when the call returns: after a crash, all answered
changes are there. All times are UTC. Methods block on the disk: call them in a thread.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from packager.addons.deploy.sagemaker.api_refusals import ResourceInUse, ResourceNotFound
from packager.addons.server.tokens import PageKey, query_mark, read_token, write_token
from packager.core.files.sqlite import Database, between, microseconds, time_of

STATE = "the server's state"
_VERSION = 1  # of the table
_SCHEMA = """
CREATE TABLE IF NOT EXISTS resources (
    kind TEXT NOT NULL, name TEXT NOT NULL, arn TEXT NOT NULL UNIQUE, document TEXT NOT NULL,
    status TEXT NOT NULL, created INTEGER NOT NULL, modified INTEGER NOT NULL, tags TEXT NOT NULL,
    PRIMARY KEY (kind, name)
)"""  # times are microseconds since 1970
_IS_WHOLE = "json_valid(document) AND json_valid(tags) AND typeof(created) = 'integer'"
_COLUMNS = "kind, name, arn, document, status, created, modified, tags"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """Something that was made by a request and stays until it is deleted."""

    kind: str  # as in its ARN: "model", "endpoint-config", "endpoint"
    name: str  # unique among those of its kind
    arn: str  # unique among all
    document: Mapping[str, Any]  # JSON: the request, and additions of the resource's owner
    status: str  # as the API spells it; "" for kinds that have none
    created: datetime
    modified: datetime
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceQuery:
    """Which resources are listed, in which order; everything left out lets all pass."""

    kind: str
    name_contains: str = ""
    statuses: frozenset[str] = frozenset()
    created_after: datetime | None = None
    created_before: datetime | None = None
    modified_after: datetime | None = None
    modified_before: datetime | None = None
    sort_by: Literal["created", "modified", "name", "status"] = "created"
    descending: bool = True
    most: int = 100
    after: str = ""  # token of the page before


@dataclass(frozen=True, slots=True)
class ResourcePage:
    """Some resources of a list."""

    resources: tuple[Resource, ...]
    token: str = ""  # of the next page; "" where there is none


class ResourceStore:
    """Resources of one server, in one file; safe to use from many threads."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path, _SCHEMA, version=_VERSION, what=STATE)
        self._database.prepare()
        self._database.check_rows(
            f"SELECT name FROM resources WHERE NOT ({_IS_WHOLE})", "the row is damaged:"
        )

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def create(
        self,
        kind: str,
        name: str,
        document: Mapping[str, Any],
        *,
        arn: str,
        status: str = "",
        tags: Mapping[str, str] | None = None,
    ) -> Resource:
        """Keep a new resource; raises `ResourceInUse` where one of that kind has the name."""
        now = microseconds(datetime.now(UTC))
        row = (kind, name, arn, _json(document), status, now, now, _json(tags or {}))
        with self._database.writing() as database:
            try:
                database.execute(
                    f"INSERT INTO resources ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row
                )
            except sqlite3.IntegrityError:
                raise ResourceInUse(f"cannot create already existing {kind} {arn!r}") from None
        return _resource(row)

    def get(self, kind: str, name: str) -> Resource:
        """Return the resource; raises `ResourceNotFound`."""
        with self._database.reading() as database:
            return _fetch(database, kind, name)

    def find_arn(self, arn: str) -> Resource | None:
        """Return the resource of an ARN; None where there is none."""
        with self._database.reading() as database:
            row = database.execute(
                f"SELECT {_COLUMNS} FROM resources WHERE arn = ?", (arn,)
            ).fetchone()
        return _resource(row) if row else None

    def every(self, kind: str) -> list[Resource]:
        """Return all resources of a kind."""
        found: list[Resource] = []
        token = ""
        while True:
            page = self.list(ResourceQuery(kind=kind, after=token))
            found += page.resources
            token = page.token
            if not token:
                return found

    def update(
        self,
        kind: str,
        name: str,
        *,
        document: Mapping[str, Any] | None = None,
        status: str | None = None,
        tags: Mapping[str, str] | None = None,
        only_from: frozenset[str] = frozenset(),
    ) -> Resource:
        """Replace the arguments that are not None, and return the resource.

        With `only_from`, nothing is changed unless it has one of these statuses: check the result.
        Raises `ResourceNotFound`.
        """
        with self._database.writing() as database:
            before = _fetch(database, kind, name)
            if only_from and before.status not in only_from:
                return before
            database.execute(
                "UPDATE resources SET document = ?, status = ?, tags = ?, modified = ?"
                " WHERE kind = ? AND name = ?",
                (
                    _json(before.document if document is None else document),
                    before.status if status is None else status,
                    _json(before.tags if tags is None else tags),
                    microseconds(datetime.now(UTC)),
                    kind,
                    name,
                ),
            )
            return _fetch(database, kind, name)

    def list(self, query: ResourceQuery) -> ResourcePage:
        """Return a page of resources; raises `ValidationRefused` for a token of another list."""
        where, values = _conditions(query)
        mark = query_mark("resources", query)
        column = query.sort_by
        order, sign = ("DESC", "<") if query.descending else ("ASC", ">")
        if query.after:
            key = read_token(query.after, mark)
            where.append(f"({column}, name) {sign} (?, ?)")
            values += [key.value, key.name]
        statement = (
            f"SELECT {_COLUMNS} FROM resources WHERE {' AND '.join(where)}"
            f" ORDER BY {column} {order}, name {order} LIMIT ?"
        )
        with self._database.reading() as database:
            rows = database.execute(statement, (*values, query.most + 1)).fetchall()
        shown = rows[: query.most]
        token = ""
        if len(rows) > len(shown):
            position = _COLUMNS.split(", ").index(column)
            token = write_token(PageKey(value=shown[-1][position], name=shown[-1][1]), mark)
        return ResourcePage(tuple(map(_resource, shown)), token)

    def delete(self, kind: str, name: str) -> Resource:
        """Remove a resource and return it; raises `ResourceNotFound`."""
        with self._database.writing() as database:
            before = _fetch(database, kind, name)
            database.execute("DELETE FROM resources WHERE kind = ? AND name = ?", (kind, name))
            return before


def _fetch(database: sqlite3.Connection, kind: str, name: str) -> Resource:
    row = database.execute(
        f"SELECT {_COLUMNS} FROM resources WHERE kind = ? AND name = ?", (kind, name)
    ).fetchone()
    if row is None:
        raise ResourceNotFound(f"could not find {kind} {name!r}")
    return _resource(row)


def _conditions(query: ResourceQuery) -> tuple[list[str], list[Any]]:
    where, values = ["kind = ?"], list[Any]([query.kind])
    if query.name_contains:
        where.append("instr(lower(name), ?) > 0")
        values.append(query.name_contains.lower())
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


def _resource(row: tuple[Any, ...]) -> Resource:
    kind, name, arn, document, status, created, modified, tags = row
    return Resource(
        kind=kind,
        name=name,
        arn=arn,
        document=json.loads(document),
        status=status,
        created=time_of(created),
        modified=time_of(modified),
        tags=json.loads(tags),
    )


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"), allow_nan=False)
