"""What registries and object stores mean by an answer that refuses, and whether another try helps.

`data/refusals.toml` is the one table of it.  Texts of a server choose a row and are never shown:
they may repeat what was sent.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from packager.core.documents import NotStrict, parse_object
from packager.core.share import read_shipped
from packager.core.text import repeats_secret

# access: rights or credentials; output: what was to be stored is not taken; passing: try again;
# busy: it cannot be served, and another try within minutes does not help.
Kind = Literal["access", "output", "passing", "busy"]
Origin = Literal["registry", "storage"]

_TABLE = Path(__file__).parent / "data" / "refusals.toml"
_SHOWN = re.compile(r"[A-Za-z0-9_.]{1,64}", re.ASCII)
_MOST_CODES = 3
_LONGEST_TEXT = 16 * 1024  # characters of a server's words that are looked at
_WORDS = ("message", "detail", "details", "error")  # fields of JSON that hold them


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One row: when it holds, what it means, and where that was seen."""

    name: str
    says: str  # the reason, as it stands behind "refuses …: "
    hint: str
    kind: Kind
    origins: frozenset[Origin]
    methods: frozenset[str] = frozenset()  # none here and below: it does not matter
    statuses: frozenset[int] = frozenset()
    codes: frozenset[str] = frozenset()
    words: str = ""  # a pattern; with `codes`, either is enough
    source: str
    date: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerError:
    """The codes of a server's error document, and its words."""

    codes: tuple[str, ...] = ()
    text: str = ""

    @property
    def shown(self) -> str:
        """Return the codes, ready to be appended to a message: ` (DENIED)`."""
        fit = [one for one in self.codes if _SHOWN.fullmatch(one) and not repeats_secret(one)]
        fit = fit[:_MOST_CODES]
        return f" ({', '.join(fit)})" if fit else ""


def find_refusal(origin: Origin, method: str, status: int, error: ServerError) -> Refusal | None:
    """Return the first row that matches an answer; None if no row does."""
    return next((row for row in refusals() if _holds(row, origin, method, status, error)), None)


def refusal_named(name: str) -> Refusal:
    """Return the row of a name."""
    return next(row for row in refusals() if row.name == name)


@cache
def refusals() -> tuple[Refusal, ...]:
    """Read the table."""
    return tuple(_refusal(row) for row in read_shipped(_TABLE)["refusal"])


def read_error(body: bytes) -> ServerError:
    """Read the error document of a registry (JSON) or an object store (XML); never raises."""
    if body.lstrip()[:1] == b"<":
        return _error(_element("Code", body), _element("Message", body))
    try:
        document = parse_object(body)
    except NotStrict:
        return ServerError()
    errors = document.get("errors")
    found = [one for one in errors if isinstance(one, dict)] if isinstance(errors, list) else []
    codes = [code for one in found if isinstance(code := one.get("code"), str)]
    # GitHub and token services say {"message": …} or {"details": …} alone.
    return _error(codes, [str(one.get(name, "")) for one in (*found, document) for name in _WORDS])


def _element(name: str, body: bytes) -> list[str]:
    """Return the raw text of the first element of that name."""
    found = re.search(rf"<{name}>([^<]{{0,1000}})</{name}>".encode(), body)
    return [found[1].decode("utf-8", "replace")] if found else []


def _error(codes: Collection[str], words: Collection[str]) -> ServerError:
    return ServerError(codes=tuple(codes), text=" ".join(words)[:_LONGEST_TEXT])


def _refusal(row: dict[str, Any]) -> Refusal:
    return Refusal(
        name=row["name"],
        says=row["says"],
        hint=row["hint"],
        kind=row["kind"],
        origins=frozenset(row.get("origins", ("registry", "storage"))),
        methods=frozenset(row.get("methods", ())),
        statuses=frozenset(row.get("statuses", ())),
        codes=frozenset(row.get("codes", ())),
        words=row.get("words", ""),
        source=row["source"],
        date=row["date"],
    )


def _holds(row: Refusal, origin: Origin, method: str, status: int, error: ServerError) -> bool:
    if (
        origin not in row.origins
        or (row.methods and method not in row.methods)
        or (row.statuses and status not in row.statuses)
    ):
        return False
    if not (row.codes or row.words):
        return True
    by_code = not row.codes.isdisjoint(error.codes)
    return by_code or bool(row.words and re.search(row.words, error.text, re.IGNORECASE))
