"""Finds samples: a file or directory, a bucket, a dataset on a hub, or the set shipped here."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any, BinaryIO, Literal

from artifact_cache.distribution import install_command
from packager.core.documents import NotStrict, parse_json, shorten
from packager.core.errors import ModelRefused, NotFound, UsageError
from packager.core.files.pipes import open_waiting
from packager.core.samples import DEFAULT, Sample, Samples, Skipped
from packager.core.text import escape
from packager.core.units import GIB, MIB, decimal
from packager.models.samples.buckets import fetched, is_bucket_data
from packager.models.samples.formats import NotASample, read_row

SUFFIXES = (".jsonl", ".ndjson", ".json", ".parquet", ".txt", ".md")
_LONGEST_LINE = 64 * MIB
_LONGEST_FILE = 2 * GIB  # of those that must be read whole: JSON arrays and texts
_SHOWN = 20  # broken rows that are kept for showing
_PARAGRAPHS = 1000  # characters after which a text's paragraphs become the next sample
_HUB = re.compile(
    r"hf://datasets/(?P<name>[\w.-]+/[\w.-]+)@(?P<revision>[\w.-]+)(/(?P<file>.+))?", re.ASCII
)
Policy = Literal["skip", "refuse"]
Row = tuple[str, object]  # its place and its value; an exception if it is unreadable


class BrokenSamples(ModelRefused):
    """The data holds rows that are no samples, and that is not allowed, or nothing else."""

    def __init__(self, source: str, count: int, first: Skipped, *, refused: bool) -> None:
        what = f"{count} broken row{'s' if count > 1 else ''}" if refused else "no usable sample"
        super().__init__(
            f"{source!r} holds {what}; the first is {first.place}: {first.reason}",
            hint="mend the data, or let broken rows be skipped"
            if refused
            else "see docs/data.md for the formats that are read",
        )


def load_samples(
    reference: str,
    *,
    broken: Policy = "skip",
    download: Callable[[str, str, str | None], Path] | None = None,
) -> Samples:
    """Read every sample of `reference`, once each.

    `reference` is a file, a directory of such files, `s3://BUCKET/PREFIX` or a manifest of it (see
    `buckets`), `hf://datasets/ORG/NAME@REVISION[/FILE]`, or `default`.  Rows that are not samples
    are counted and, with `broken="refuse"`, refused. `download(name, revision, file)` fetches a
    dataset and gives its place on disk.
    """
    rows = read_rows(reference, download)
    taken: dict[Sample, None] = {}
    formats: Counter[str] = Counter()
    skipped: list[Skipped] = []
    count = repeated = 0
    for place, value in rows:
        try:
            if isinstance(value, NotASample):
                raise value
            name, sample = read_row(value)
        except NotASample as why:
            count += 1
            if len(skipped) < _SHOWN:
                skipped.append(Skipped(place=place, reason=str(why)))
            continue
        repeated += sample in taken
        formats[name] += 1
        taken[sample] = None
    if skipped and (broken == "refuse" or not taken):
        raise BrokenSamples(reference, count, skipped[0], refused=broken == "refuse")
    if not taken:
        raise NotFound(f"{reference!r} holds no samples", hint="see docs/data.md for the formats")
    return Samples(
        source=reference,
        samples=tuple(taken),
        formats=dict(sorted(formats.items())),
        skipped=tuple(skipped),
        skipped_count=count,
        repeated=repeated,
    )


def read_rows(
    reference: str, download: Callable[[str, str, str | None], Path] | None = None
) -> Iterator[Row]:
    """Yield every row of `reference` with its place, whatever it holds; see `load_samples`."""
    if is_bucket_data(reference):
        with fetched(reference, SUFFIXES) as files:
            yield from _rows(files, reference)
    else:
        yield from _rows(_files(reference, download or _download), reference)


def _files(
    reference: str, download: Callable[[str, str, str | None], Path]
) -> list[tuple[str, Path]]:
    """The files to read, each with the name to show, in an order that is always the same."""
    if reference == DEFAULT:
        shipped = resources.files("packager.catalog") / "data" / "samples.jsonl"
        return [("default", Path(str(shipped)))]
    if reference.startswith("hf://"):
        matched = _HUB.fullmatch(reference)
        if matched is None:
            raise UsageError(
                f"{reference!r} is not a pinned dataset",
                hint="write hf://datasets/ORG/NAME@REVISION, or …@REVISION/FILE",
            )
        place = download(matched["name"], matched["revision"], matched["file"])
    else:
        place = Path(reference)
    try:
        if place.is_file():
            return [(escape(place.name), place)]
        if not place.is_dir():
            raise NotFound(
                f"no data found at {shorten(reference, 200)}", hint="name a file or a directory"
            )
        found = sorted(file for file in place.rglob("*") if file.suffix.lower() in SUFFIXES)
    except OSError as error:  # too long for a path, or not to be read
        raise NotFound(
            f"cannot read the data at {shorten(reference, 200)}: {error.strerror}",
            hint="name a file or a directory",
        ) from error
    if not found:
        raise NotFound(
            f"directory {reference!r} holds no data", hint=f"files end with {', '.join(SUFFIXES)}"
        )
    return [(escape(file.relative_to(place).as_posix()), file) for file in found if file.is_file()]


def _rows(files: list[tuple[str, Path]], reference: str) -> Iterator[Row]:
    for name, path in files:
        read = _READERS.get(path.suffix.lower())
        if read is None:
            raise UsageError(
                f"{name!r} in {reference!r} has a suffix of no known format",
                hint=f"files end with {', '.join(SUFFIXES)}",
            )
        try:
            yield from read(name, path)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise NotFound(
                f"cannot read {name!r} in {reference!r}: {reason}",
                hint="let it be read, or name another file",
            ) from error


def _lines(name: str, path: Path) -> Iterator[Row]:
    with open_waiting(path) as file:
        number = 0
        while line := file.readline(_LONGEST_LINE):
            number += 1
            place = f"{name}, line {number}"
            if len(line) == _LONGEST_LINE and not line.endswith(b"\n"):
                _pass_line(file)
                yield place, NotASample(f"it is longer than {decimal(_LONGEST_LINE)}")
            elif line.strip():
                yield place, _parsed(line.removeprefix(b"\xef\xbb\xbf"))


def _pass_line(file: BinaryIO) -> None:
    while (rest := file.readline(_LONGEST_LINE)) and not rest.endswith(b"\n"):
        pass


def _array(name: str, path: Path) -> Iterator[Row]:
    """A JSON file: one list of rows, one row, or in truth JSON lines."""
    with open_waiting(path) as file:
        first = next((line.strip() for line in file if line.strip()), b"")
    if not isinstance(_parsed(first), NotASample) and not first.startswith(b"["):
        yield from _lines(name, path)
        return
    value = _parsed(_whole(name, path), max_values=_LONGEST_FILE)
    if isinstance(value, list):
        for number, row in enumerate(value, 1):
            yield f"{name}, row {number}", row
    else:
        yield name, value


def _texts(name: str, path: Path) -> Iterator[Row]:
    """A text in pieces of whole paragraphs."""
    try:
        text = _whole(name, path).decode("utf-8")
    except UnicodeDecodeError as error:
        yield name, NotASample(f"byte {error.start} is not UTF-8")
        return
    piece = ""
    number = 0
    for paragraph in re.split(r"\n\s*\n", text):
        piece = f"{piece}\n\n{paragraph}" if piece else paragraph
        if len(piece) >= _PARAGRAPHS:
            number += 1
            yield f"{name}, piece {number}", {"text": piece}
            piece = ""
    if piece.strip():
        yield f"{name}, piece {number + 1}", {"text": piece}


def _table(name: str, path: Path) -> Iterator[Row]:
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise UsageError(
            f"{name!r} needs pyarrow to be read", hint=install_command("pyarrow", "parquet")
        ) from error
    import pyarrow

    try:
        number = 0
        for batch in parquet.ParquetFile(path).iter_batches(batch_size=256):
            for row in batch.to_pylist():
                number += 1
                yield f"{name}, row {number}", _without_gaps(row)
    except pyarrow.ArrowException as error:
        yield (
            name,
            NotASample(f"it is not a parquet file that can be read ({error.__class__.__name__})"),
        )


def _without_gaps(row: dict[str, Any]) -> dict[str, Any]:
    """A table has every column in every row; null means missing."""
    return {key: value for key, value in row.items() if value is not None}


def _parsed(data: bytes, *, max_values: int = _LONGEST_LINE) -> object:
    """Parse a row, or a file of rows: texts have many commas, and are as long as they are."""
    try:
        return parse_json(data, max_bytes=_LONGEST_FILE, max_values=max_values, allow_infinity=True)
    except NotStrict as why:
        return NotASample(str(why))


def _whole(name: str, path: Path) -> bytes:
    if path.stat().st_size > _LONGEST_FILE:
        raise UsageError(
            f"{name!r} is over {decimal(_LONGEST_FILE)}, and must be read completely",
            hint="write it as JSON lines (.jsonl): one row on each line",
        )
    return path.read_bytes()


def _download(name: str, revision: str, file: str | None) -> Path:
    """Fetch a dataset into the hub's cache, and give its directory or the file."""
    from huggingface_hub import HfApi

    from packager.core.remote.hub_failures import HubRequest, explained
    from packager.core.remote.hub_session import downloading, limit_answers

    limit_answers()
    api = HfApi(library_name="packager", headers={"Accept-Encoding": "identity"})
    asked = HubRequest(
        name=f"datasets/{name}", revision=revision, endpoint=api.endpoint, keeps_files=True
    )
    with explained(asked):
        if file:
            with downloading(file, _LONGEST_FILE):
                found = api.hf_hub_download(name, file, repo_type="dataset", revision=revision)
        else:
            patterns = [f"*{suffix}" for suffix in SUFFIXES]
            found = api.snapshot_download(
                name, repo_type="dataset", revision=revision, allow_patterns=patterns
            )
    return Path(found)


_READERS: dict[str, Callable[[str, Path], Iterator[Row]]] = {
    ".jsonl": _lines,
    ".ndjson": _lines,
    ".json": _array,
    ".parquet": _table,
    ".txt": _texts,
    ".md": _texts,
}
