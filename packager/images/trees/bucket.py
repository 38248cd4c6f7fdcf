"""A tree in a bucket: `s3://BUCKET/PREFIX`, whose manifest is the last object written.

Objects have the names that engines read, so a tree is incomplete while it is replaced: its manifest
is removed before the first object changes.  A note beside them lists packager's objects and their
contents until the new tree is complete.  Objects of the tree before are removed after that.  One
build writes to a prefix at a time.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from artifact_cache.s3.buckets import strong_etag
from artifact_cache.s3.parts import DIGEST
from packager.core.documents import NotStrict, parse_object, shorten
from packager.core.documents import field as typed
from packager.core.errors import NotFound, OutputFailed, PackagerError
from packager.core.image import ModelTree, TreeFile
from packager.core.references import BucketPlace
from packager.core.remote.s3_write import WritableBucket
from packager.core.text import escape_text
from packager.core.tree_manifest import MANIFEST, MAX_MANIFEST_BYTES, read_manifest
from packager.images.trees.journal import TreeJournal
from packager.images.trees.objects import ObjectUpload, ObjectUploads

NOTE = "packager-tree.unfinished"
_LARGEST_OBJECT = 5 * 1000**4  # S3: 5 TB


@dataclass(frozen=True, slots=True)
class _Object:
    """An object as the bucket lists it."""

    size: int
    etag: str
    modified: datetime | None = field(default=None, compare=False)  # None: we have just sent it


@dataclass(frozen=True, slots=True)
class _Held:
    """What an object with this ETag is known to hold."""

    size: int
    sha256: str
    etag: str


class TreeBucket:
    """A prefix that holds exactly one tree."""

    def __init__(self, bucket: WritableBucket, place: BucketPlace, journal: TreeJournal) -> None:
        self._bucket = bucket
        self._prefix = f"{place.key.strip('/')}/" if place.key.strip("/") else ""
        self._journal = journal
        self._uploads = ObjectUploads(bucket, journal)
        self._objects: dict[str, _Object] = {}
        self._held: dict[str, _Held] = {}
        self._owned: set[str] = set()
        self._manifest = b""
        self._tree: ModelTree | None = None
        self._begun = threading.Lock()
        self._has_begun = False

    @property
    def name(self) -> str:
        return f"s3://{self._bucket.name}/{self._prefix}".rstrip("/")

    @property
    def bytes_sent(self) -> int:
        return self._uploads.bytes_sent

    def preflight(self) -> None:
        """Look at the prefix: bucket, credentials, and whose objects are there."""
        self._look()

    def prepare(self, tree: ModelTree) -> None:
        """Look again: hours of work may lie between."""
        large = next((file for file in tree.files if file.size > _LARGEST_OBJECT), None)
        if large is not None:
            raise OutputFailed(
                f"{large.path!r} is larger than the 5 TB of an object",
                hint="split it: --max-layer-size 4GiB",
            )
        self._look()
        self._tree = tree
        self._has_begun = False

    def has(self, file: TreeFile, sha256: str) -> bool:
        """Compare with what the manifest, the note, the journal or the object itself says."""
        found = self._objects.get(file.path)
        if found is None or found.size != file.size:
            return False
        held = (self._held.get(file.path), self._journaled(file.path))
        if _Held(found.size, sha256, found.etag) in held:
            return True
        if any(one is not None and one.etag == found.etag for one in held):
            return False  # it is known to hold something else
        try:
            answer = self._bucket.call("head_object", Key=self._key(file.path))
        except NotFound:
            return False
        return bool(answer.get("Metadata", {}).get(DIGEST) == sha256)

    def may_have(self, file: TreeFile) -> bool:
        """Return whether there is an object of this path and size."""
        found = self._objects.get(file.path)
        return found is not None and found.size == file.size

    def open(self, file: TreeFile, sha256: str) -> ObjectUpload:
        """Open an upload; the first takes the manifest of the tree before away."""
        self._begin()

        def done(held: str, etag: str) -> None:
            self._objects[file.path] = _Object(file.size, etag)
            self._held[file.path] = _Held(file.size, held, etag)

        return self._uploads.open(file, self._key(file.path), sha256, done)

    def publish(self, manifest: bytes) -> None:
        """Check that the objects are still those that were written, then write the manifest."""
        assert self._tree is not None
        wanted = {file.path for file in self._tree.files}
        is_there = not self._has_begun and manifest == self._manifest and self._owned <= wanted
        if is_there and NOTE not in self._objects:
            return self._uploads.close()
        if not is_there:
            self._begin()
            self._check_unchanged()
            self._bucket.put(self._key(MANIFEST), manifest, "application/json")
        self._remove(sorted((self._owned - wanted) & set(self._objects)))
        self._remove([NOTE])
        self._abort_leftovers()
        self._journal.forget()
        self._uploads.close()
        return None

    def keep_beside(self, name: str, data: bytes) -> None:
        """Write a document beside the tree's prefix; a tree that is the bucket has no beside."""
        if place := self._prefix.rstrip("/"):
            self._bucket.put(f"{place}.{name}", data, "application/json")

    def abandon(self) -> None:
        """Leave what was sent: the next build need not send it again."""
        self._uploads.close()

    def _key(self, path: str) -> str:
        return f"{self._prefix}{path}"

    def _look(self) -> None:
        """List the prefix; refuse one with foreign objects."""
        self._objects = dict(self._listed())
        self._held, self._owned, self._manifest = {}, set(), b""
        try:
            if NOTE in self._objects:
                self._take_note(self._read(NOTE))
            if MANIFEST in self._objects:
                self._manifest = self._read(MANIFEST)
                files = read_manifest(self._manifest).files
                self._owned |= {file.path for file in files}
                for file in files:
                    there = self._objects.get(file.path)
                    if there is not None and self._is_as_old_as_the_manifest(there, file.size):
                        self._held[file.path] = _Held(file.size, file.sha256, there.etag)
        except NotStrict as error:
            raise _not_a_tree(self.name, f"its manifest is damaged: {error}") from None
        strangers = set(self._objects) - self._owned - {MANIFEST, NOTE}
        if strangers:
            some = shorten(escape_text(min(strangers)))
            raise _not_a_tree(self.name, f"{some} is none of its files")

    def _is_as_old_as_the_manifest(self, there: _Object, size: int) -> bool:
        """Return whether the manifest, the last object of its tree, may speak of this one."""
        manifest = self._objects[MANIFEST]
        if there.modified is None or manifest.modified is None:
            return False
        return there.size == size and there.modified <= manifest.modified

    def _listed(self) -> Iterator[tuple[str, _Object]]:
        for page in self._bucket.pages(self._prefix):
            for one in page.get("Contents", ()):
                path = str(one["Key"]).removeprefix(self._prefix)
                if path:  # "" is how consoles note a folder
                    etag = strong_etag(one["ETag"])
                    yield path, _Object(int(one["Size"]), etag, one.get("LastModified"))

    def _read(self, path: str) -> bytes:
        if self._objects[path].size > MAX_MANIFEST_BYTES:
            raise NotStrict(f"it has more than {MAX_MANIFEST_BYTES} bytes")
        return self._bucket.read(self._key(path), MAX_MANIFEST_BYTES)

    def _take_note(self, data: bytes) -> None:
        """Read what an unfinished build noted: its files, and what objects held before."""
        document = parse_object(data, max_bytes=MAX_MANIFEST_BYTES)
        self._owned |= {str(path) for path in typed(document, "files", list)}
        for path, known in typed(document, "held", dict).items():
            self._held[str(path)] = _Held(
                typed(known, "size", int), typed(known, "sha256", str), typed(known, "etag", str)
            )

    def _begin(self) -> None:
        """Note whose objects these are, then take the manifest away. Once."""
        with self._begun:
            if self._has_begun:
                return
            assert self._tree is not None
            self._owned |= {file.path for file in self._tree.files}
            note = {
                "files": sorted(self._owned),
                "held": {
                    path: {"size": one.size, "sha256": one.sha256, "etag": one.etag}
                    for path, one in sorted(self._held.items())
                },
            }
            self._bucket.put(self._key(NOTE), json.dumps(note).encode(), "application/json")
            if MANIFEST in self._objects:
                self._remove([MANIFEST])
            self._has_begun = True

    def _journaled(self, path: str) -> _Held | None:
        found = self._journal.done(path)
        return _Held(*found) if found is not None else None

    def _check_unchanged(self) -> None:
        """Refuse to name a tree whose objects another build has changed meanwhile."""
        assert self._tree is not None
        there = dict(self._listed())
        for file in self._tree.files:
            if there.get(file.path) != self._objects.get(file.path):
                raise OutputFailed(
                    f"'{self.name}/{file.path}' changed while the tree was written",
                    hint="let one build at a time write to a prefix, then build again",
                )
        self._objects = there

    def _abort_leftovers(self) -> None:
        """Abort uploads that killed builds began: their parts would be kept, and paid for."""
        with suppress(PackagerError):
            answer = self._bucket.call("list_multipart_uploads", Prefix=self._prefix)
            for upload in answer.get("Uploads", ()):
                self._bucket.call(
                    "abort_multipart_upload", Key=upload["Key"], UploadId=upload["UploadId"]
                )

    def _remove(self, paths: list[str]) -> None:
        for path in paths:
            self._bucket.call("delete_object", Key=self._key(path))


def _not_a_tree(name: str, why: str) -> OutputFailed:
    """Return the error of this name."""
    return OutputFailed(
        f"{name!r} is not a tree that packager wrote: {why}",
        hint="choose a new prefix, or remove its objects",
        code="_NotATree",
    )
