"""Builds of this machine as pages list them, from their records; each is parsed once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from packager.addons.server.pages.job_views import can_run, minute
from packager.catalog.instances import find_instance
from packager.catalog.prices import priced
from packager.core.errors import NotFound, PackagerError
from packager.core.record import BuildRecord
from packager.core.units import decimal, usd
from packager.pipeline.records import load_record

MOST_KNOWN = 20_000  # records that are remembered
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class RecordFile:
    """A record's file; there may be very many, of which few are opened."""

    digest: str  # 64 hexadecimal digits
    path: str
    changed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRow:
    """A build as a list shows it."""

    digest: str  # with `sha256:`
    name: str  # as clients ask for it
    model: str  # as it was asked for
    places: tuple[str, ...]  # images and trees that were written
    instance: str
    what: str  # engine, quantization, draft
    size: str
    price: str  # of an hour; "" where none is known
    changed: str  # when the record was written, or last measured
    quantize: str
    runs_here: bool  # as an image of a Docker Engine or a registry


@dataclass(frozen=True, slots=True)
class RecordedBuilds:
    """The records below a state directory."""

    folder: Path
    _known: dict[RecordFile, BuildRow | None] = field(default_factory=dict)

    def rows(self, start: int, most: int) -> tuple[list[BuildRow], bool]:
        """Return builds from `start`, the newest first, and whether there are more."""
        found = list(islice(self._all(), start, start + most + 1))
        return found[:most], len(found) > most

    def count(self) -> int:
        """Return how many records there are."""
        return sum(1 for _ in record_files(self.folder))

    def find(self, digest: str) -> BuildRecord:
        """Return the record of an image or tree; raises `NotFound`."""
        name = digest.removeprefix("sha256:")
        if _DIGEST.fullmatch(name):
            with suppress(PackagerError):
                return load_record(self.folder / f"{name}.json")
        raise NotFound(f"no build {digest[:80]!r} is recorded here", hint="look at the list again")

    def _all(self) -> Iterator[BuildRow]:
        for file in sorted(record_files(self.folder), key=lambda one: -one.changed):
            if file not in self._known:
                if len(self._known) >= MOST_KNOWN:
                    self._known.clear()
                self._known[file] = _row_of(file)
            if row := self._known[file]:
                yield row


def record_files(folder: Path) -> Iterator[RecordFile]:
    """Yield the records of a folder, unsorted and unread."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            stem, _, kind = entry.name.partition(".")
            if kind == "json" and _DIGEST.fullmatch(stem):
                with suppress(OSError):
                    yield RecordFile(stem, entry.path, entry.stat().st_mtime)


def _row_of(file: RecordFile) -> BuildRow | None:
    """Return the row of a record; None for one that cannot be read."""
    try:
        record = load_record(Path(file.path))
    except (PackagerError, OSError):
        return None
    request = record.request
    quantize = request.quantize if request.quantize not in (None, "none") else ""
    return BuildRow(
        digest=record.digest,
        name=record.served_name,
        model=request.model,
        places=(*(one.name for one in record.images), *(one.name for one in record.trees)),
        instance=request.instance,
        what=", ".join(_techniques(record, quantize or "")),
        size=decimal(sum(one.size for one in record.layers) or _files_of(record)),
        price=_price(record),
        changed=minute(datetime.fromtimestamp(file.changed, UTC)),
        quantize=quantize or "",
        runs_here=bool(record.images) and can_run(record),
    )


def _techniques(record: BuildRecord, quantize: str) -> Iterator[str]:
    yield f"{record.engine} {record.engine_version}".strip()
    if quantize:
        yield quantize
    if record.draft:
        yield f"draft {record.draft.name or record.draft.kind}"


def _files_of(record: BuildRecord) -> int:
    return max((tree.size for tree in record.trees), default=0)


def _price(record: BuildRecord) -> str:
    """Return the price of an hour of the build's instance; "" where none is known."""
    with suppress(PackagerError):
        instance = priced(find_instance(record.request.instance), record.request.region, ())
        if instance.price_usd_hour is not None:
            return usd(instance.price_usd_hour)
    return ""
