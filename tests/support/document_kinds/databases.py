"""Files that SQLite keeps."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from artifact_cache.index import Index
from packager.addons.server.jobs.store import DATABASE_FILE, JobStore
from packager.addons.server.resources import ResourceStore
from packager.addons.server.used_signatures import SeenSignatures
from packager.core.image import Blob, FileRange
from packager.images.digest_index import DigestIndex, fingerprint_of
from packager.images.lineage.graph import Edge, Fragment, LineageNode
from packager.images.lineage.index import LineageDocument, LineageIndex
from packager.images.seen_blobs import SeenBlobs
from packager.images.trees.journal import TreeJournal
from tests.support.document_kinds.kinds import DocumentKind, database
from tests.support.job_values import new_job
from tests.support.known import known

_DIGEST = "sha256:" + "d" * 64
_OTHER = "sha256:" + "e" * 64
_NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


def _fill_lineage(path: Path) -> None:
    nodes = (LineageNode(id="model:a", kind="model", label="a", facts={"size": "1"}),)
    found = Fragment(nodes=nodes, edges=(Edge("model:a", "image:b"),), aliases=(("a", "model:a"),))
    LineageIndex(path).update([LineageDocument(place="kept:a", stamp="1", read=lambda: found)])


def _fill_resources(path: Path) -> None:
    store = ResourceStore(path)
    store.create("model", "a", {"ModelName": "a"}, arn="arn:a", status="ok", tags={"b": "c"})
    store.close()


def _fill_blobs(path: Path) -> None:
    file = path.parent / "blob"
    file.write_bytes(b"blob")
    blob = Blob(segments=(FileRange(path=str(file), offset=0, length=4, sha256="c" * 64),))
    index = DigestIndex(path)
    before = known(fingerprint_of(blob))
    index.put(blob, _DIGEST, before, started_ns=1)
    index.put_packed(_DIGEST, "zstd", _OTHER, 5)


def _ask_blobs(path: Path) -> object:
    blob = Blob(segments=(FileRange(path="anywhere", offset=0, length=4, sha256="c" * 64),))
    index = DigestIndex(path)
    return index.get(blob) and index.get_packed(_DIGEST, "zstd")


def _ask_index(path: Path) -> object:
    before = path.stat().st_ino
    Index(path.parent).summaries()
    return path.stat().st_ino == before  # one that is not understood is made anew


DATABASES: tuple[DocumentKind, ...] = (
    database(
        "jobs",
        "packager.addons.server.jobs.rows",
        lambda path: JobStore(path.parent).create(new_job()),
        lambda path: JobStore(path.parent).find("a"),
        "VERSION",
        file=DATABASE_FILE,
    ),
    database(
        "server-resources",
        "packager.addons.server.resources",
        _fill_resources,
        lambda path: ResourceStore(path).get("model", "a"),
        "_VERSION",
    ),
    database(
        "server-signatures",
        "packager.addons.server.used_signatures",
        lambda path: SeenSignatures(path).use("a", _NOW),
        lambda path: not SeenSignatures(path).use("a", _NOW),
    ),
    database(
        "lineage-index",
        "packager.images.lineage.index",
        _fill_lineage,
        lambda path: LineageIndex(path).find("a"),
        "_VERSION",
    ),
    database("digest-index", "packager.images.digest_index", _fill_blobs, _ask_blobs),
    database(
        "seen-blobs",
        "packager.images.seen_blobs",
        lambda path: SeenBlobs(path).add("host", "a/b", [_DIGEST]),
        lambda path: SeenBlobs(path).repositories("host", _DIGEST),
    ),
    database(
        "tree-journal",
        "packager.images.trees.journal",
        lambda path: TreeJournal(path, "s3://b/p").note_done("a", 1, "c" * 64, "etag"),
        lambda path: TreeJournal(path, "s3://b/p").done("a"),
    ),
    database(
        "cache-index",
        "artifact_cache.index",
        lambda path: Index(path.parent).summaries(),
        _ask_index,
        "FORM",
        file="index.sqlite",
    ),
)
