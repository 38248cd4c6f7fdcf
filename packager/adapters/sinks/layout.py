"""Writing an OCI image layout directory: `oci:DIR[:TAG]`.

Blobs are written beside their place and renamed into it, `index.json` comes
last and at once: a reader never sees an incomplete image.  Other images in
the directory stay; blobs that only the replaced image needed are removed.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from packager.adapters.files import explain_disk_errors, sync_directory, write_atomically
from packager.core.image import (
    MEDIA_INDEX,
    Blob,
    FileRange,
    ImageRef,
    ImageSpec,
    Layer,
    SealedImage,
)
from packager.core.units import decimal
from packager.errors import OutputFailed, UsageError
from packager.imaging.oci import INDEX_TYPES

REF_NAME = "org.opencontainers.image.ref.name"
_LAYOUT_FILE = b'{"imageLayoutVersion":"1.0.0"}'
_INDEX_FILE = "index.json"
_TAG = re.compile(r"[A-Za-z0-9]+(?:(?:[-._@+]|--)[A-Za-z0-9]+)*")  # of the image specification
_MARGIN = 16 * 1024 * 1024  # room for configuration, manifest and directory blocks


class LayoutSink:
    """One image in one layout directory. Holds the directory's lock until the end."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.root, self.tag = split_layout_reference(target.removeprefix("oci:"))
        if not _TAG.fullmatch(self.tag):
            raise UsageError(
                f"output {target!r}: {self.tag!r} cannot name an image in a layout",
                hint="use letters and digits, with single '.', '-', '_', '+' or '@' between them",
            )
        self._blobs = self.root / "blobs" / "sha256"
        self._lock: int | None = None
        self._created_root = False
        self._committed: list[Path] = []

    def prepare(self, image: ImageSpec) -> None:
        """Create or check the directory, take its lock, check the free space."""
        with explain_disk_errors(self.root):
            if self.root.exists() and not self.root.is_dir():
                raise _NotALayout(self.root)
            self._enter()
            if not _is_layout_or_empty(self.root):
                raise _NotALayout(self.root)
            self._index()  # a damaged one is refused before anything is written
            self._blobs.mkdir(parents=True, exist_ok=True)
            self._clear_leftovers()
            missing = sum(layer.size for layer in image.layers if not self._has(layer))
            free = shutil.disk_usage(self.root).free
        if missing + _MARGIN > free:
            raise OutputFailed(
                f"{str(self.root)!r} needs {decimal(missing)}, {decimal(free)} are free",
                hint="free some space, or push straight to a registry, which needs none",
            )

    def writer(self, layer: Layer) -> _LayoutWriter | None:
        """Open a temporary file, unless the blob is there already."""
        if self._has(layer):
            return None
        return _LayoutWriter(self._blobs, self._committed)

    def locate(self, digest: str) -> Blob | None:
        """Our own copy, once it is committed."""
        path = self._path(digest)
        if not path.is_file():
            return None
        return Blob((FileRange(path=str(path), offset=0, length=path.stat().st_size),))

    def publish(self, image: SealedImage, blobs: Mapping[str, Blob]) -> ImageRef:  # noqa: ARG002
        """Write configuration and manifest, check sizes, then replace `index.json`."""
        with explain_disk_errors(self.root):
            self._put(image.config_descriptor.digest, image.config)
            self._put(image.digest, image.manifest)
            for layer in image.layers:
                if self._path(layer.digest).stat().st_size != layer.size:
                    raise OutputFailed(
                        f"blob {layer.digest} in {str(self.root)!r} has a wrong size"
                    )
            write_atomically(self.root / "oci-layout", _LAYOUT_FILE)
            replaced = self._write_index(image)
            self._remove_unreachable(replaced)
        self._release()
        return ImageRef(target=self.target, name=f"oci:{self.root}:{self.tag}", digest=image.digest)

    def abandon(self) -> None:
        """Remove what this build wrote and no image names: the index may have been replaced."""
        if self._lock is None:
            return
        with suppress(OSError, OutputFailed):
            needed = self._reachable(self._index()["manifests"])
            for path in self._committed:
                if f"sha256:{path.name}" not in needed:
                    path.unlink(missing_ok=True)
            if self._created_root and not needed:
                shutil.rmtree(self.root, ignore_errors=True)
        self._release()

    def _enter(self) -> None:
        """Make the directory where there is none, and wait for its lock.

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
        stale = (".oci-layout.*.tmp", ".index.json.*.tmp", "blobs/sha256/.*.tmp")
        for pattern in (*stale, "blobs/sha256/.new-*"):
            for path in self.root.glob(pattern):
                path.unlink()

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _path(self, digest: str) -> Path:
        return self._blobs / digest.removeprefix("sha256:")

    def _has(self, layer: Layer) -> bool:
        path = self._path(layer.digest) if layer.digest else None
        return path is not None and path.is_file() and path.stat().st_size == layer.size

    def _put(self, digest: str, data: bytes) -> None:
        path = self._path(digest)
        if not path.exists():
            write_atomically(path, data)
            path.chmod(0o644)
            self._committed.append(path)

    def _index(self) -> dict[str, Any]:
        """What `index.json` says; of a new layout, what it will."""
        index: dict[str, Any] = {"schemaVersion": 2, "mediaType": MEDIA_INDEX, "manifests": []}
        path = self.root / _INDEX_FILE
        if not path.exists():
            return index
        try:
            index.update(json.loads(path.read_bytes()))
            for entry in index["manifests"]:
                entry["digest"].removeprefix("sha256:")
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise OutputFailed(
                f"{str(path)!r} is damaged",
                hint="write to a new directory, or remove this one",
            ) from error
        return index

    def _write_index(self, image: SealedImage) -> list[dict[str, Any]]:
        index = self._index()
        entry = image.manifest_descriptor.to_json()
        entry["annotations"] = {REF_NAME: self.tag}
        replaced: list[dict[str, Any]] = []
        kept: list[dict[str, Any]] = []
        for other in index["manifests"]:
            same_name = (other.get("annotations") or {}).get(REF_NAME) == self.tag
            (replaced if same_name else kept).append(other)
        index["manifests"] = [*kept, entry]
        write_atomically(self.root / _INDEX_FILE, json.dumps(index, separators=(",", ":")).encode())
        return replaced

    def _remove_unreachable(self, replaced: list[dict[str, Any]]) -> None:
        needed = self._reachable(self._index()["manifests"])
        for digest in self._reachable(replaced) - needed:
            with suppress(OSError):
                self._path(digest).unlink()

    def _reachable(self, manifests: list[dict[str, Any]]) -> set[str]:
        """Digests of `manifests` and of all they refer to, nested indexes included."""
        found: set[str] = set()
        for entry in manifests:
            found.add(entry["digest"])
            with suppress(OSError, ValueError, KeyError):
                document = json.loads(self._path(entry["digest"]).read_bytes())
                if entry.get("mediaType") in INDEX_TYPES:
                    found |= self._reachable(document["manifests"])
                else:
                    found.add(document["config"]["digest"])
                    found.update(layer["digest"] for layer in document["layers"])
        return found


class _LayoutWriter:
    """A blob on its way into the layout."""

    def __init__(self, directory: Path, committed: list[Path]) -> None:
        self._directory = directory
        self._committed = committed
        with explain_disk_errors(directory):
            descriptor, name = tempfile.mkstemp(prefix=".new-", dir=directory)
        self._file = os.fdopen(descriptor, "wb", buffering=0)
        self._temporary = Path(name)

    def write(self, chunk: memoryview) -> None:
        """Append; a full disk is an `OutputFailed`."""
        with explain_disk_errors(self._directory):
            while chunk:
                chunk = chunk[self._file.write(chunk) :]

    def commit(self, digest: str) -> None:
        """Flush to disk, then rename to the digest's name."""
        path = self._directory / digest.removeprefix("sha256:")
        with explain_disk_errors(self._directory):
            os.fchmod(self._file.fileno(), 0o644)
            os.fsync(self._file.fileno())
            self._file.close()
            existed = path.exists()
            self._temporary.replace(path)
            sync_directory(self._directory)
        if not existed:
            self._committed.append(path)

    def abort(self) -> None:
        """Forget the bytes."""
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self._temporary.unlink()


def split_layout_reference(reference: str) -> tuple[Path, str]:
    """Split `DIR[:TAG]`; the tag is `latest` when none is given."""
    directory, colon, tag = reference.rpartition(":")
    if not colon or "/" in tag:
        directory, tag = reference, "latest"
    if not directory or not tag:
        raise UsageError(
            f"'oci:{reference}' names no directory", hint="write it as oci:DIR or oci:DIR:TAG"
        )
    return Path(directory).absolute(), tag


def _is_layout_or_empty(root: Path) -> bool:
    return (root / "oci-layout").is_file() or _only_our_leftovers(root)


def _only_our_leftovers(root: Path) -> bool:
    """True for an empty directory, or one where a build was killed before its end."""
    return all(
        (entry.name == "blobs" and entry.is_dir()) or entry.match(".oci-layout.*.tmp")
        for entry in root.iterdir()
    )


class _NotALayout(OutputFailed):
    def __init__(self, root: Path) -> None:
        super().__init__(
            f"{str(root)!r} exists and is not an OCI layout",
            hint="choose a new directory, or remove this one",
        )
