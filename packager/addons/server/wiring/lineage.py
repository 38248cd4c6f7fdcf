"""Documents of this machine that record lineage."""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from packager.addons.deploy.wiring.deployments import deployment_documents
from packager.addons.server.sagemaker.optimization import HEAD_FOLDER
from packager.cli.wiring.caches import artifacts_dir
from packager.cli.wiring.images import image_services_for
from packager.cli.wiring.settings import Settings, parse_output, state_dir
from packager.core.documents import NotStrict, parse_object
from packager.core.errors import NotFound, PackagerError, UsageError
from packager.core.files.atomic import can_write, read_regular
from packager.core.files.opening import open_checked
from packager.core.image import Platform
from packager.core.references import ImageTarget, RegistryTarget
from packager.core.tree_manifest import MANIFEST, MAX_MANIFEST_BYTES
from packager.images.lineage.graph import Fragment, LineageGraph, LineageNode
from packager.images.lineage.index import LineageDocument, LineageIndex
from packager.images.lineage.records import record_fragment
from packager.images.lineage.services import endpoint_fragment, job_fragment
from packager.images.oci import sha256
from packager.images.target import BUCKET, DIRECTORY, ENGINE, LAYOUT, directory_of, layout_of
from packager.pipeline.attached_record import attached_records
from packager.pipeline.records import MAX_RECORD_BYTES, record_document

if TYPE_CHECKING:
    from packager.addons.server.jobs.values import BackgroundJob

_INDEX = "lineage.sqlite"
_TITLE = "org.opencontainers.image.title"
_MOST_SUBJECTS = 20  # of one name
_PREFIX = re.compile(r"(sha256:)?[0-9a-f]{6,64}")
_RESOURCES = (
    "SELECT kind, name, document, status, modified FROM resources "
    "WHERE kind IN ('endpoint', 'inference-component')"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageResult:
    """The lineage of one artifact, and the documents that could not be read."""

    graph: LineageGraph
    unreadable: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what the name meant before, or may mean now


def find_lineage(ref: str, platform: Platform, settings: Settings) -> LineageResult:
    """Return the sources and uses of `ref`; raise `NotFound` for an unknown one.

    A file is read as a build record, a directory by its current content, a name is looked up in the
    records here, and anything else is an image, whose attached records are claims.
    """
    index, unreadable = lineage_index(settings)
    more: list[Fragment] = []
    notes: list[str] = []
    subjects = _of_file(ref, more)
    if not subjects and not _is_here(ref):
        subjects = index.find(ref)
        if subjects and _is_tag(ref):
            subjects = _as_it_is_now(ref, platform, settings, index, more, notes)
    if not subjects:
        subjects = _of_image(ref, platform, settings, index, more)
    if len(subjects) > 1:
        subjects = _narrowed(ref, subjects, index)
    return LineageResult(
        graph=index.graph(subjects, more), unreadable=unreadable, notes=tuple(notes)
    )


def _of_file(ref: str, more: list[Fragment]) -> tuple[str, ...]:
    """Return the image of a record file."""
    path = Path(ref)
    try:
        if not path.is_file():
            return ()
        fragment = read_record_fragment(path)
    except (NotStrict, OSError) as error:
        raise UsageError(
            f"{ref!r} is not a build record: {error}",
            hint="`packager build --record FILE` writes one",
        ) from error
    more.append(fragment)
    return (fragment.nodes[0].id,)


def _is_here(ref: str) -> bool:
    """Return whether the named directory exists: its layout or tree identifies itself."""
    try:
        target = parse_output(ref)
    except UsageError:  # a name of something else
        return False
    if target.scheme == LAYOUT:
        return layout_of(target).directory.exists()
    return target.scheme == DIRECTORY and directory_of(target).exists()


def _is_tag(ref: str) -> bool:
    """Return whether a reference is a registry tag: it has a host, and no digest."""
    host = ref.partition("/")[0]
    if "/" not in ref or not ("." in host or ":" in host or host == "localhost"):
        return False
    try:
        target = parse_output(ref)
    except UsageError:
        return False
    return isinstance(target, RegistryTarget) and target.image.digest is None


def _as_it_is_now(
    ref: str,
    platform: Platform,
    settings: Settings,
    index: LineageIndex,
    more: list[Fragment],
    notes: list[str],
) -> tuple[str, ...]:
    """Return the image that a tag names now: it may have moved since a build."""
    recorded = index.find(ref)
    try:
        now = _of_image(ref, platform, settings, index, more)
    except PackagerError as error:
        notes.append(f"what {ref} names now is not known, this is what was built here: {error}")
        return recorded
    if not set(now) & set(recorded):
        before = ", ".join(one.removeprefix("image:") for one in recorded[:_MOST_SUBJECTS])
        [digest] = (one.removeprefix("image:") for one in now)
        notes.append(f"{ref} names {digest} now; builds of this machine gave it to {before}")
    return now


def _of_image(
    ref: str, platform: Platform, settings: Settings, index: LineageIndex, more: list[Fragment]
) -> tuple[str, ...]:
    """Return the image of a registry, a layout or an engine, with the records attached to it."""
    target = parse_output(ref)
    if target.scheme == DIRECTORY:
        return _of_tree(ref, directory_of(target), index, more)
    if target.scheme == BUCKET:
        raise _unknown(ref)
    if target.scheme == ENGINE:
        return _of_engine(target, index)
    if isinstance(target, RegistryTarget) and "/" not in ref:
        raise _unknown(ref)
    opened = image_services_for(settings).open(target, platform)
    image = opened.image
    node = f"image:{image.digest}"
    if target.scheme == LAYOUT and index.find(image.digest):
        return (node,)
    if not index.find(image.digest):
        label = image.labels.get(_TITLE, "") or ref
        facts = {"digest": image.digest}
        more.append(Fragment(nodes=(LineageNode(id=node, kind="image", label=label, facts=facts),)))
    for record in attached_records(opened):
        document = parse_object(record_document(record), max_bytes=MAX_RECORD_BYTES)
        more.append(record_fragment(document, claimed=True))
    return (node,)


def _of_tree(ref: str, root: Path, index: LineageIndex, more: list[Fragment]) -> tuple[str, ...]:
    """Return the tree in a directory, by the digest of its manifest."""
    try:
        data = read_regular(root / MANIFEST, MAX_MANIFEST_BYTES)
    except OSError as error:
        raise NotFound(
            f"{ref!r} has no {MANIFEST}: {error.strerror}",
            hint="name a directory that `packager build --output dir:DIR` wrote",
        ) from error
    digest = sha256(data)
    node = f"tree:{digest}"
    if not index.find(digest):
        facts = {"digest": digest}
        more.append(Fragment(nodes=(LineageNode(id=node, kind="tree", label=ref, facts=facts),)))
    return (node,)


def _of_engine(target: ImageTarget, index: LineageIndex) -> tuple[str, ...]:
    """Return an engine's image, by the digests it is known by: no layer is exported for that."""
    from packager.cli.serving.containers import digests_of, find_image
    from packager.images.docker_engine import connect_engine

    found = find_image(connect_engine(without="or name the image by its digest"), target.rest)
    digests = digests_of(found)
    known = [node for digest in digests for node in index.find(digest)]
    return tuple(known[:1]) or (f"image:{digests[0]}",)


def _narrowed(ref: str, subjects: Sequence[str], index: LineageIndex) -> tuple[str, ...]:
    """Return the one matching node; raise for an ambiguous prefix or name."""
    kinds = {one.partition(":")[0] for one in subjects}
    if len(kinds) == 1 and len(subjects) <= _MOST_SUBJECTS and not _PREFIX.fullmatch(ref):
        return tuple(subjects)  # builds of one model have one name: all are shown
    found = index.labels(subjects[:_MOST_SUBJECTS])
    candidates = ", ".join(f"{one} ({found[one].label})" if one in found else one for one in found)
    more = len(subjects) - _MOST_SUBJECTS
    raise UsageError(
        f"{ref!r} stands for {len(subjects)} things",
        hint=f"name one: {candidates}{f' and {more} more' if more > 0 else ''}",
    )


def _unknown(ref: str) -> NotFound:
    """Return the error of this name."""
    return NotFound(
        f"nothing that is recorded here is called {ref!r}",
        hint="name an image (HOST/REPOSITORY:TAG, oci:DIR, docker:NAME), dir:DIR, a record's "
        "file, a digest, a key of `packager cache ls`, a job or an endpoint",
        code="_Unknown",
    )


def lineage_index(settings: Settings) -> tuple[LineageIndex, tuple[str, ...]]:
    """Return the updated index, and messages about unreadable documents."""
    state = state_dir(settings.environment)
    place = state / _INDEX
    if can_write(state):
        state.mkdir(parents=True, exist_ok=True)
    index = LineageIndex(place if can_write(state) else None)
    return index, index.update(lineage_documents(settings))


def lineage_documents(settings: Settings) -> Iterator[LineageDocument]:
    """Yield build records, entries of the artifact cache, jobs and endpoints of this machine."""
    for path, stamp in _files(state_dir(settings.environment) / "records", 0):
        yield LineageDocument(
            place=path, stamp=stamp, read=partial(read_record_fragment, Path(path))
        )
    for path, stamp in _files(artifacts_dir(settings) / "ac", 2):
        yield LineageDocument(place=f"kept:{path}", stamp=stamp, read=partial(_entry, Path(path)))

    yield from _jobs(state_dir(settings.environment) / "jobs")
    yield from _endpoints(state_dir(settings.environment) / "serve")
    yield from deployment_documents(settings.environment)


def _jobs(root: Path) -> Iterator[LineageDocument]:
    from packager.addons.server.jobs.store import DATABASE_FILE, JobStore
    from packager.addons.server.jobs.values import JobQuery

    if not (root / DATABASE_FILE).is_file():
        return
    store, token = JobStore(root), ""
    while True:
        page = store.list(JobQuery(after=token))
        for job in page.jobs:
            stamp = f"{job.modified.isoformat()} {job.record.is_file()}"
            yield LineageDocument(place=f"job:{job.id}", stamp=stamp, read=partial(_job, job))
        token = page.token
        if not token:
            return


def _job(job: BackgroundJob) -> Fragment:
    results: tuple[str, ...] = ()
    if job.record.is_file():
        made = read_record_fragment(job.record)
        results = tuple(node.id for node in made.nodes if node.kind in ("image", "tree"))
    heads = _weights_in(job.folder / HEAD_FOLDER)
    return job_fragment(job.kind, job.name, job.status, job.asked.document, results, heads)


def _weights_in(folder: Path) -> dict[str, str]:
    """Return the digests of weight files in a folder, which are read whole: once for each job."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        with open_checked(str(path)) as file:
            found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def _endpoints(root: Path) -> Iterator[LineageDocument]:
    """Yield the endpoints of servers, which may be running: their files are only read."""
    for path in sorted(root.glob("*.sqlite")) if root.is_dir() else ():
        with (
            suppress(sqlite3.Error),
            closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as base,
        ):
            for kind, name, text, status, modified in base.execute(_RESOURCES).fetchall():
                yield LineageDocument(
                    place=f"{kind}:{name}",
                    stamp=f"{modified} {status}",
                    read=partial(_endpoint, kind, name, status, text),
                )


def _endpoint(kind: str, name: str, status: str, text: str) -> Fragment:
    return endpoint_fragment(kind, name, status, parse_object(text.encode()))


def read_record_fragment(path: Path) -> Fragment:
    """Read a build record as a graph; raise `NotStrict` for an invalid one."""
    data = read_regular(path, MAX_RECORD_BYTES)
    return record_fragment(parse_object(data, max_bytes=MAX_RECORD_BYTES))


def _entry(path: Path) -> Fragment:
    from artifact_cache.entry import MAX_STORED_BYTES, parse_entry
    from artifact_cache.errors import CacheError
    from packager.images.lineage.entries import entry_fragment

    try:
        return entry_fragment(parse_entry(read_regular(path, MAX_STORED_BYTES)))
    except CacheError as error:
        raise NotStrict(str(error)) from error


def _files(root: Path, depth: int) -> Iterator[tuple[str, str]]:
    """Yield JSON files below a directory, with what changes when they do."""
    try:
        entries: Sequence[os.DirEntry[str]] = list(os.scandir(root))
    except OSError:
        return
    for entry in entries:
        if depth and entry.is_dir(follow_symlinks=False):
            yield from _files(Path(entry.path), depth - 1)
        elif not depth and entry.name.endswith(".json"):
            status = entry.stat(follow_symlinks=False)
            yield entry.path, f"{status.st_mtime_ns} {status.st_size} {status.st_ino}"
