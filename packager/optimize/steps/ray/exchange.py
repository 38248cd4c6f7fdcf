"""Transfers files to machines that run our steps: as cache entries, addressed by content.

The submitting machine publishes files that nodes lack; nodes compare each file with its digest.
Only files, never a directory of ours, and never under the key of a result.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from artifact_cache.cache import ArtifactCache
from artifact_cache.entry import Entry, Output, Writer
from artifact_cache.errors import CacheError
from artifact_cache.files import link_or_copy
from artifact_cache.key import key_of, plain
from artifact_cache.store import Address
from artifact_cache.trust import Signer
from packager.core.documents import NotStrict, parse_model
from packager.core.errors import NotFound, OutputFailed, PackagerError
from packager.core.files.opening import identity_of
from packager.core.image import Blob, FileRange, Inline, RemoteRange
from packager.core.model import ModelFile
from packager.core.order import MAX_ORDER_BYTES, OrderedFile, StepOrder
from packager.core.remote.addresses import parse_hub
from packager.images.digest_index import DigestIndex
from packager.models.pinning import digest_of
from packager.optimize.keys.documents import StepInputKey
from packager.optimize.steps.presence import Presence
from packager.optimize.steps.protocol import ReadBlob, check_file, whole_file
from packager.optimize.steps.ray.orders import segments_of

CONTENT = "content"  # the one file of an entry
_ENTRY = re.compile(r"cache://(?P<kind>[a-z][a-z0-9-]{0,39})/(?P<key>[0-9a-f]{64})/(?P<path>.+)")

Scratch = Callable[[], AbstractContextManager[Callable[[str], Path]]]


class InputsMissing(Exception):
    """Inputs of an order were found neither on this machine nor at their stated addresses."""

    def __init__(self, digests: tuple[str, ...]) -> None:
        super().__init__(digests)
        self.digests = digests


class FileExchange:
    """The submitting machine's side."""

    def __init__(
        self,
        presence: Presence,
        *,
        scratch: Scratch,
        read: ReadBlob,
        version: str,
        signer: Signer | None = None,
    ) -> None:
        self._presence = presence
        self._scratch = scratch
        self._read = read
        self._version = version
        self._signer = signer

    def digest(self, file: ModelFile) -> str:
        """Return the sha256 of a file, reading it once."""
        hashed = hashlib.sha256()
        for chunk in self._read(_blob(file)):
            hashed.update(chunk)
        return hashed.hexdigest()

    def offer_order(self, order: StepOrder) -> str:
        """Publish an order where nodes find it; return its digest. The same order is put once."""
        data = order.model_dump_json(exclude_defaults=True).encode()
        if len(data) > MAX_ORDER_BYTES:
            raise OutputFailed(
                f"the inputs of step {order.name!r} that were made here are too large to transfer",
                hint="use fewer or shorter samples, or run the step with --executor local",
            )
        digest = hashlib.sha256(data).hexdigest()
        self._offer(digest, len(data), lambda target: target.write_bytes(data))
        return digest

    def offer_file(self, file: ModelFile, digest: str) -> None:
        """Publish a file to every writable shared store."""
        check_file(file)

        def put(target: Path) -> None:
            if source := whole_file(file):
                # Linked where it can be.  Its mode is not a store's: a directory takes a copy.
                link_or_copy(source, target, 0o644)
            else:
                with target.open("xb") as out:
                    for chunk in self._read(_blob(file)):
                        out.write(chunk)

        self._offer(digest, file.size, put)

    def _offer(self, digest: str, size: int, put: Callable[[Path], object]) -> None:
        document = StepInputKey(sha256=digest)
        if self._presence.has_shared(document.kind, key_of(document)):
            return
        entry = Entry(
            key=key_of(document),
            keydoc=plain(document),
            outputs=(Output(path=CONTENT, sha256=digest, size=size, mode="0644"),),
            writer=Writer(nonce=secrets.token_hex(16), builder_id="", version=self._version),
            built_at=int(time.time()),
            build_s=0.0,
        )
        if self._signer:
            entry = self._signer.sign(entry)
        with self._scratch() as make:
            place = make("offer")
            put(place / CONTENT)
            try:
                self._presence.offer(entry, place)
            except (CacheError, OSError) as error:
                raise OutputFailed(
                    f"an input of the step cannot be put into the shared cache: {error}",
                    hint="`packager cache check` asks the stores",
                ) from error


class InputFinder:
    """The node's side: finds an order's inputs, locally or at their stated addresses."""

    def __init__(
        self,
        cache: ArtifactCache,
        *,
        make_directory: Callable[[str], Path],
        read: ReadBlob,
        index: DigestIndex,
    ) -> None:
        self._cache = cache
        self._make_directory = make_directory
        self._read = read
        self._index = index
        self._entries: dict[Address, Mapping[str, FileRange]] = {}

    def order(self, digest: str) -> StepOrder:
        """Read an order out of the shared cache."""
        found = self._handed_on(digest)
        if found is None:
            raise NotFound(
                f"order {digest[:12]} is not in the shared cache as this node sees it",
                hint="every node must reach the same store: a dir: store has to be mounted on "
                "all of them under the same path, credentials of a bucket are the node's own",
            )
        data = Path(found.path).read_bytes()
        try:
            return parse_model(StepOrder, data, max_bytes=MAX_ORDER_BYTES)
        except NotStrict as error:
            raise PackagerError(
                f"order {digest[:12]} cannot be read: {error}",
                hint="run one version of packager on every machine of the cluster",
            ) from error

    def inputs(self, order: StepOrder) -> dict[str, tuple[ModelFile, ...]]:
        """Find every file of every input. Raises `InputsMissing` with all that are nowhere."""
        missing: list[str] = []
        found = {
            role: tuple(self._file(file, missing) for file in files)
            for role, files in order.inputs.items()
        }
        if missing:
            raise InputsMissing(tuple(dict.fromkeys(missing)))
        return found

    def _file(self, file: OrderedFile, missing: list[str]) -> ModelFile:
        sent = segments_of(file)
        segments: tuple[Inline | FileRange | RemoteRange, ...] = sent or ()
        if sent is None:
            found = self._content(file)
            if found is None:
                missing.append(file.sha256)
            segments = (found,) if found else ()
        return ModelFile(
            path=file.path,
            role=file.role,
            content=segments[0] if len(segments) == 1 else Blob(segments),
            executable=file.executable,
            sha256=file.sha256,
        )

    def _content(self, file: OrderedFile) -> FileRange | RemoteRange | None:
        return (
            self._same_place(file)
            or self._in_entry(file)
            or _on_hub(file)
            or self._handed_on(file.sha256)
        )

    def _same_place(self, file: OrderedFile) -> FileRange | None:
        """Look up the file under its original path on this node; compare its digest."""
        path = Path(file.place) if file.place else None
        if path is None or not path.is_absolute():
            return None
        try:
            status = path.lstat()
            content = FileRange(
                path=str(path), offset=0, length=file.size, checked=identity_of(status)
            )
            if not path.is_file() or path.is_symlink() or status.st_size != file.size:
                return None
            digest = digest_of(Blob((content,)), self._index, self._read)
        except (OSError, PackagerError):
            return None
        return content if digest == file.sha256 else None

    def _in_entry(self, file: OrderedFile) -> FileRange | None:
        """Look up the file in the cache entry of the step that produced it."""
        named = _ENTRY.fullmatch(file.origin)
        if named is None:
            return None
        address = Address(named["kind"], named["key"])
        if address not in self._entries:
            self._entries[address] = self._extracted(address)
        found = self._entries[address].get(named["path"])
        return found if found and found.sha256 == file.sha256 else None

    def _handed_on(self, digest: str) -> FileRange | None:
        """Look up the file among the inputs transferred through the shared cache."""
        address = Address("step-input", key_of(StepInputKey(sha256=digest)))
        found = self._extracted(address).get(CONTENT)
        return found if found and found.sha256 == digest else None

    def _extracted(self, address: Address) -> Mapping[str, FileRange]:
        place = self._make_directory("input")
        try:
            stored = self._cache.store.get(address)
            if stored is None:
                return {}
            stored.extract(place)
        except (CacheError, OSError):
            return {}
        return {
            one.path: FileRange(
                path=str(place / one.path), offset=0, length=one.size, sha256=one.sha256
            )
            for one in stored.entry.outputs
        }


def _on_hub(file: OrderedFile) -> RemoteRange | None:
    """Return the file's address on the hub with commit and digest: its reader verifies it."""
    if not file.origin.startswith("hf://"):
        return None
    try:
        address = parse_hub(file.origin)
    except PackagerError:
        return None
    if address.size != file.size or address.sha256 not in ("", file.sha256):
        return None
    return RemoteRange(url=address.url, offset=0, length=file.size)


def _blob(file: ModelFile) -> Blob:
    return file.content if isinstance(file.content, Blob) else Blob((file.content,))
