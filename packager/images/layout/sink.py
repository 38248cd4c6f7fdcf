"""Writing an OCI image layout directory: `oci:DIR[:TAG]`.

Blobs are written beside their place and renamed into it, `index.json` comes last and at once: a
reader never sees an incomplete image.  Other images stay; blobs of the replaced one alone go.

Where the file system can, a layer shares the model's bytes on the disk, and a
blob that lies in another layout becomes a second name of the same file.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import Any

from packager.core.errors import ModelRefused, NotFound, OutputFailed, ProtocolFailed, UsageError
from packager.core.files.atomic import explain_disk_errors, read_regular, write_atomically
from packager.core.files.opening import open_range
from packager.core.image import (
    MEDIA_INDEX,
    Attached,
    Blob,
    FileRange,
    ImageRef,
    ImageSpec,
    Layer,
    SealedImage,
)
from packager.core.ports import ImageSink
from packager.core.references import DEFAULT_TAG, LayoutTarget
from packager.core.units import decimal
from packager.images.layout.artifacts import (
    ATTACHED,
    KIND,
    REF_NAME,
    attached_to,
    small_blob,
    with_attached,
    without_images,
)
from packager.images.layout.blobs import WRITE_AGAIN, BlobFile, LinkedBlob
from packager.images.oci import (
    LONGEST_DOCUMENT,
    is_digest,
    parse_index,
    parse_object,
    sha256,
)
from packager.images.registry.reference import refuse_digest
from packager.images.sharing import BLOCK, linkable, share_extents

SPARSE_BASE = "dev.packager.sparse-base"  # from where to get the layers that are not here
REGISTRY = "registry://"
_LAYOUT_FILE = b'{"imageLayoutVersion":"1.0.0"}'
_INDEX_FILE = "index.json"
_UNFINISHED = ".unfinished"  # names the blobs that were there before a build that has not ended
_TEMPORARY = (".oci-layout.*.tmp", ".index.json.*.tmp", f".{_UNFINISHED}.*.tmp")
_TAG = re.compile(r"[A-Za-z0-9]+(?:(?:[-._@+]|--)[A-Za-z0-9]+)*")  # of the image specification
_MARGIN = 16 * 1024 * 1024  # room for configuration, manifest and directory blocks


class LayoutSink(ImageSink):
    """Image sink for one OCI layout directory; holds the directory's lock until the end.

    With `sparse_base`, the base's layers are left out, and `index.json` says
    where they are.  `beside` are the layouts that are written just before this one.
    """

    keeps_index = True

    def __init__(
        self, target: LayoutTarget, *, sparse_base: bool = False, beside: Sequence[LayoutSink] = ()
    ) -> None:
        self.target = target.text
        refuse_digest(target.text, target.digest, "oci:DIR:TAG")
        self.root, self.tag = target.directory, target.tag or DEFAULT_TAG
        if not _TAG.fullmatch(self.tag):
            raise UsageError(
                f"output {target.text!r}: {self.tag!r} cannot name an image in a layout",
                hint="use letters and digits, with single '.', '-', '_', '+' or '@' between them",
            )
        if any(other.root.resolve() == self.root.resolve() for other in beside):
            raise UsageError(
                "two outputs are images in one layout directory",
                hint="name one, and build again for the other: nothing is read again",
            )
        self._blobs = self.root / "blobs" / "sha256"
        self._lock: int | None = None
        self._created_root = False
        self._committed: list[Path] = []
        self._before: frozenset[str] = frozenset()  # blobs that no unfinished build has made
        self._was_killed = False  # the build before this one
        self._sparse_base = sparse_base
        self._beside = beside
        self._base_from = ""  # where the layers are that are left out
        self._left_out: frozenset[str] = frozenset()
        self._shares: dict[int, bool] = {}  # device of a source → its extents can be shared

    @property
    def record_path(self) -> Path:
        """Return where the build record goes: beside the directory, which holds images only."""
        return self.root.with_name(f"{self.root.name}.record.json")

    def prepare(self, image: ImageSpec) -> None:
        """Create or check the directory, take its lock, check the free space."""
        with explain_disk_errors(self.root):
            if self.root.exists() and not self.root.is_dir():
                raise _not_a_layout(self.root)
            self._enter()
            if not _is_layout_or_empty(self.root):
                raise _not_a_layout(self.root)
            self._index()  # a damaged one is refused before anything is written
            self._blobs.mkdir(parents=True, exist_ok=True)
            self._clear_leftovers()
            self._committed.clear()  # of a try that was abandoned
            self._note_start()
            self._leave_out(image)
            twins = [layer.twin for layer in image.layers if layer.twin]
            missing = sum(map(self._needed, (*image.layers, *twins)))
            free = shutil.disk_usage(self.root).free
        if missing + _MARGIN > free:
            raise OutputFailed(
                f"{str(self.root)!r} needs {decimal(missing)}, {decimal(free)} are free",
                hint="free some space, or push straight to a registry, which needs none",
            )

    def writer(self, layer: Layer) -> BlobFile | LinkedBlob | None:
        """Open a place for the blob, unless it is there already or left out."""
        if self.has(layer) or layer.digest in self._left_out:
            return None
        for other in self._beside:
            if self._is_near(other.root):  # it has, or takes, the same bytes before we do
                linked = LinkedBlob(self._blobs, other.path_of, self._committed.append)
                if not other.has(layer):
                    return linked
                linked.commit(layer.digest)
                return None
        if layer.compression != "none":
            return BlobFile(self._blobs, None, self._committed.append)
        file = BlobFile(self._blobs, layer.blob, self._committed.append)
        twin = None if file.complete else linkable(layer.blob, layer.digest)
        if twin is None or not self._is_near(twin):
            return file
        file.abort()
        return LinkedBlob(self._blobs, lambda digest: twin, self._committed.append)  # noqa: ARG005

    def locate(self, digest: str) -> Blob | None:
        """Return our own copy, once it is committed."""
        path = self.path_of(digest)
        if not path.is_file():
            return None
        return Blob((FileRange(path=str(path), offset=0, length=path.stat().st_size),))

    def publish(self, image: SealedImage, blobs: Mapping[str, Blob]) -> ImageRef:  # noqa: ARG002
        """Write configurations and manifests, check sizes, then replace `index.json`."""
        with explain_disk_errors(self.root):
            for form in image.forms:
                self._put(form.config_descriptor.digest, form.config)
                self._put(form.digest, form.manifest)
            if image.index is not None:
                self._put(image.digest, image.index.document)
            for layer in (layer for form in image.forms for layer in form.layers):
                path = self.path_of(layer.digest)
                if layer.digest in self._left_out and not path.exists():
                    continue
                if path.stat().st_size != layer.size:
                    raise OutputFailed(
                        f"blob {layer.digest} in {str(self.root)!r} has a wrong size",
                        hint=WRITE_AGAIN,
                    )
            write_atomically(self.root / "oci-layout", _LAYOUT_FILE)
            replaced = self._write_index(image)
            self._remove_unreachable(replaced)
        self._release()
        return ImageRef(target=self.target, name=f"oci:{self.root}:{self.tag}", digest=image.digest)

    def attach(
        self,
        image: SealedImage,
        artifacts: Sequence[Attached],
        *,
        required: bool = False,  # noqa: ARG002
    ) -> None:
        """Keep artifacts beside the image, and name them in `index.json`."""
        with explain_disk_errors(self.root):
            self._enter()
            try:
                index = self._index()
                before = index["manifests"]
                index["manifests"], blobs = with_attached(
                    before, image.digest, artifacts, self._small_blob
                )
                for blob in blobs:
                    self._put(sha256(blob), blob)
                data = json.dumps(index, separators=(",", ":")).encode()
                write_atomically(self.root / _INDEX_FILE, data)
                after = self._reachable(index["manifests"])
                self._unlink(self._reachable(before) - after)
            finally:
                self._release()

    def _small_blob(self, digest: str, most: int) -> bytes:
        return small_blob(self.path_of(digest), digest, most)

    def abandon(self) -> None:
        """Remove what this build wrote and no image names: the index may have been replaced."""
        if self._lock is None:
            return
        with suppress(OSError, OutputFailed):
            needed = self._reachable(self._index()["manifests"])
            made = {f"sha256:{path.name}" for path in self._committed}
            self._remove((made | self._orphans()) - needed)
            if self._created_root and not needed:
                shutil.rmtree(self.root, ignore_errors=True)
        self._release()

    def _enter(self) -> None:
        """Create the directory if needed and acquire its lock.

        A build that held the lock before us may have failed and taken the
        directory away: then it is made again.
        """
        while self._lock is None:
            created = not self.root.exists()
            self.root.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.root, os.O_RDONLY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.root.exists() and os.path.samestat(os.fstat(lock), self.root.stat()):
                self._lock, self._created_root = lock, created
            else:
                os.close(lock)

    def _clear_leftovers(self) -> None:
        """Remove temporary files of a killed build: we hold the lock, nobody writes them."""
        for pattern in (*_TEMPORARY, "blobs/sha256/.*.tmp", "blobs/sha256/.new-*"):
            for path in self.root.glob(pattern):
                path.unlink()

    def _note_start(self) -> None:
        """Record the blobs present at the start, so that leftovers of a killed build are known.

        Until it ends, those are kept: it may well need them.
        """
        place = self.root / _UNFINISHED
        self._was_killed = place.exists()
        if self._was_killed:
            self._before = frozenset(place.read_text().split())
        else:
            self._note(self._here())

    def _note(self, before: Set[str]) -> None:
        self._before = frozenset(before)
        write_atomically(self.root / _UNFINISHED, "\n".join(sorted(before)).encode())

    def _here(self) -> set[str]:
        return {f"sha256:{path.name}" for path in self._blobs.iterdir()}

    def _orphans(self) -> set[str]:
        """Return only the blobs of killed builds: other programs may be writing here."""
        return self._here() - self._before if self._was_killed else set()

    def _unlink(self, digests: Set[str]) -> None:
        for digest in digests:
            with suppress(OSError):
                self.path_of(digest).unlink()

    def _remove(self, digests: Set[str]) -> None:
        self._unlink(digests)
        (self.root / _UNFINISHED).unlink(missing_ok=True)

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def path_of(self, digest: str) -> Path:
        """Return the path of a blob, present or not."""
        return self._blobs / digest.removeprefix("sha256:")

    def has(self, layer: Layer) -> bool:
        """Return whether the blob is present, by name and size."""
        path = self.path_of(layer.digest) if layer.digest else None
        return path is not None and path.is_file() and path.stat().st_size == layer.size

    def _leave_out(self, image: ImageSpec) -> None:
        """Record the base's layers as absent, with the repository to read them from."""
        base = [layer for layer in image.layers if layer.role == "base"]
        if not self._sparse_base or not base:
            return
        self._left_out = frozenset(layer.digest for layer in base)
        mount_from = base[0].mount_from
        self._base_from = f"{REGISTRY}{mount_from}" if mount_from else image.base.reference

    def _is_near(self, place: Path) -> bool:
        return place.stat().st_dev == self._blobs.stat().st_dev

    def _needed(self, layer: Layer) -> int:
        """Return the bytes that the layer will take on the disk."""
        if self.has(layer) or layer.digest in self._left_out:
            return 0
        if any(self._is_near(other.root) for other in self._beside):
            return 0
        twin = linkable(layer.blob, layer.digest)
        if twin is not None and self._is_near(twin):
            return 0
        return sum(
            part.length % BLOCK
            if isinstance(part, FileRange) and self._can_share(part)
            else part.length
            for part in layer.blob.segments
        )

    def _can_share(self, part: FileRange) -> bool:
        """Return whether extents can be shared from this file's device.

        Tried once per device, with one block.
        """
        if part.length < BLOCK or part.offset % BLOCK:
            return False
        try:
            with open_range(part) as source:
                device = os.fstat(source.fileno()).st_dev
                if device not in self._shares:
                    with tempfile.TemporaryFile(dir=self._blobs) as target:
                        shared = share_extents(
                            source.fileno(),
                            target.fileno(),
                            source_offset=part.offset,
                            length=BLOCK,
                            target_offset=0,
                        )
                        self._shares[device] = bool(shared)
                return self._shares[device]
        except (OSError, ModelRefused, NotFound):
            return False

    def _put(self, digest: str, data: bytes) -> None:
        path = self.path_of(digest)
        if not path.exists():
            write_atomically(path, data)
            path.chmod(0o644)
            self._committed.append(path)

    def _index(self) -> dict[str, Any]:
        """Return `index.json`; of a new layout, its first version."""
        index: dict[str, Any] = {"schemaVersion": 2, "mediaType": MEDIA_INDEX, "manifests": []}
        path = self.root / _INDEX_FILE
        if not path.exists():
            return index
        try:
            data = read_regular(path, LONGEST_DOCUMENT)
            entries = parse_index(data)
            if not all(is_digest(entry.get("digest")) for entry in entries):
                raise ProtocolFailed("an entry has no digest", hint=WRITE_AGAIN)
            index.update(parse_object(data, _INDEX_FILE), manifests=list(entries))
        except ProtocolFailed as error:
            raise OutputFailed(
                f"{str(path)!r} is damaged: {error.message}",
                hint=WRITE_AGAIN,
            ) from error
        return index

    def _write_index(self, image: SealedImage) -> list[dict[str, Any]]:
        index = self._index()
        entry = image.named.to_json()
        entry["annotations"] = {REF_NAME: self.tag}
        if self._base_from:
            entry["annotations"][SPARSE_BASE] = self._base_from
        replaced: list[dict[str, Any]] = []
        kept: list[dict[str, Any]] = []
        for other in index["manifests"]:
            same_name = (other.get("annotations") or {}).get(REF_NAME) == self.tag
            (replaced if same_name else kept).append(other)
            if same_name and other.get("digest") == image.digest:
                noted = other.get("annotations") or {}
                entry["annotations"] |= {
                    key: noted[key] for key in (ATTACHED, KIND) if key in noted
                }
        still = {one.get("digest") for one in (*kept, entry)}
        gone = {str(one.get("digest")) for one in replaced} - still
        kept, orphaned = without_images(kept, gone, self._small_blob)
        replaced += orphaned
        index["manifests"] = [*kept, entry]
        self._note(self._before - self._reachable(replaced))
        write_atomically(self.root / _INDEX_FILE, json.dumps(index, separators=(",", ":")).encode())
        return replaced

    def _remove_unreachable(self, replaced: list[dict[str, Any]]) -> None:
        needed = self._reachable(self._index()["manifests"])
        self._remove((self._reachable(replaced) | self._orphans()) - needed)

    def _reachable(self, manifests: Sequence[Mapping[str, Any]]) -> set[str]:
        """Return the digests of `manifests` and of all they refer to, nested indexes included."""
        found: set[str] = set()
        waiting: list[object] = list(manifests)
        while waiting:
            entry = waiting.pop()
            digest = entry.get("digest") if isinstance(entry, dict) else None
            if not isinstance(digest, str) or not is_digest(digest) or digest in found:
                continue
            found.add(digest)
            waiting += [{"digest": one} for one in attached_to(entry)]
            with suppress(OSError, ProtocolFailed):
                document = parse_object(
                    read_regular(self.path_of(digest), LONGEST_DOCUMENT), digest
                )
                # Another tool's image counts as well, as far as it can be understood.
                found |= _digests([document.get("config"), *_listed(document, "layers")])
                waiting += _listed(document, "manifests")
        return found


def _listed(document: Mapping[str, Any], name: str) -> list[object]:
    listed = document.get(name)
    return listed if isinstance(listed, list) else []


def _digests(entries: Sequence[object]) -> set[str]:
    named = (entry.get("digest") for entry in entries if isinstance(entry, dict))
    return {digest for digest in named if isinstance(digest, str) and is_digest(digest)}


def _is_layout_or_empty(root: Path) -> bool:
    return (root / "oci-layout").is_file() or _only_our_leftovers(root)


def _only_our_leftovers(root: Path) -> bool:
    """Return whether the directory is empty or holds only what a killed build left."""
    return all(
        (entry.name == "blobs" and entry.is_dir())
        or entry.name == _UNFINISHED
        or any(map(entry.match, _TEMPORARY))
        for entry in root.iterdir()
    )


def _not_a_layout(root: Path) -> OutputFailed:
    """Return the error of this name."""
    return OutputFailed(
        f"{str(root)!r} exists and is not an OCI layout",
        hint="choose a new directory, or remove this one",
        code="_NotALayout",
    )
