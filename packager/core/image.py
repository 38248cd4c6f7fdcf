"""Images as values: segments, blobs, layers, bases.

A blob is a list of segments, never a temporary file.  Its size is known
before a byte is read; its digest may only be known afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, Protocol, runtime_checkable

MEDIA_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
MEDIA_INDEX = "application/vnd.oci.image.index.v1+json"
MEDIA_CONFIG = "application/vnd.oci.image.config.v1+json"
MEDIA_LAYER = "application/vnd.oci.image.layer.v1.tar"
MEDIA_EROFS = "application/vnd.erofs.layer.v1"  # as containerd calls such a file system
MEDIA_FILE = "application/octet-stream"  # a file of a tree by itself, in no image

BY_CACHE = "cache"  # in place of the id of a key that claims a layer's digest
Compression = Literal["none", "zstd", "auto"]  # `auto`: zstd where samples show that it helps
LayerFormat = Literal["plain", "erofs"]  # `erofs`: file systems beside the plain layers
LayerOrder = Literal["base-first", "weights-first"]
LayerRole = Literal["base", "weights", "model", "draft", "adapter", "compiled", "config", "file"]
TreeRole = Literal["weights", "config", "tokenizer", "other", "draft", "compiled", "serving"]


@dataclass(frozen=True, slots=True)
class Inline:
    """Bytes that we made ourselves: tar headers, padding, rendered files."""

    data: bytes

    @property
    def length(self) -> int:
        return len(self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRange:
    """`length` bytes of a local file from `offset`."""

    path: str
    offset: int
    length: int
    sha256: str = ""  # of the whole file, out of the artifact cache: compared when it is read;
    # links to the file, and so its ctime, may change meanwhile
    checked: tuple[int, ...] = ()  # `opening.identity_of` the file when it was checked


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteRange:
    """`length` bytes of something fetched by `url` when they are needed.

    The scheme chooses the reader: `registry://HOST/REPOSITORY@sha256:…`.
    """

    url: str
    offset: int
    length: int
    in_order: bool = False  # one of several parts, which together are verified by a digest


class Sources(Protocol):
    """The bytes that a maker is given."""

    @property
    def places(self) -> tuple[Place, ...]:
        """Return where they are, or what they are made of."""
        ...

    @property
    def memo(self) -> MutableMapping[object, float]:
        """Return what makers of the same reader found out of places: each is in one state."""
        ...

    def read(self, number: int) -> Iterator[memoryview]:
        """Yield a source's bytes, as often as is asked; a piece is valid until the next."""
        ...


@runtime_checkable
class Maker(Protocol):
    """A pure function of bytes: with equal sources, makers of equal identity make equal bytes."""

    @property
    def identity(self) -> str:
        """Return what is computed, with its settings and its version."""
        ...

    def make(self, sources: Sources) -> Iterator[bytes | memoryview]:
        """Yield the bytes in order, in pieces of any size."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """`length` bytes, from `offset`, of what `maker` makes of the bytes of `sources`."""

    maker: Maker
    sources: tuple[Place, ...]
    offset: int = 0
    length: int

    @property
    def ranges(self) -> Iterator[FileRange | RemoteRange]:
        """Yield the ranges of files that are read for it, in order."""
        for source in self.sources:
            if isinstance(source, Computed):
                yield from source.ranges
            else:
                yield source


Place = FileRange | RemoteRange | Computed  # bytes that something else is computed of
Segment = Inline | FileRange | RemoteRange | Computed


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes described by segments, in order."""

    segments: tuple[Segment, ...]

    @property
    def size(self) -> int:
        return sum(segment.length for segment in self.segments)

    @property
    def length(self) -> int:
        """The size, in the word of a segment: a file's content may be either."""
        return self.size

    @property
    def is_computed(self) -> bool:
        """Return whether some of the bytes are computed while they are read."""
        return any(isinstance(segment, Computed) for segment in self.segments)

    @property
    def ranges(self) -> Iterator[FileRange | RemoteRange]:
        """Yield the ranges of files that are read for it, in order."""
        for segment in self.segments:
            if isinstance(segment, Computed):
                yield from segment.ranges
            elif not isinstance(segment, Inline):
                yield segment


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeFile:
    """A file of a model's tree: what an engine finds in a directory, without an image."""

    path: str  # relative to the tree, POSIX
    role: TreeRole
    content: FileRange | RemoteRange | Inline | Blob
    executable: bool = False
    sha256: str = ""  # hexadecimal, where the source already proves it

    @property
    def size(self) -> int:
        return self.content.length

    @property
    def blob(self) -> Blob:
        return self.content if isinstance(self.content, Blob) else Blob((self.content,))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTree:
    """The files of a model under the paths that engines read, with the manifest's other fields."""

    files: tuple[TreeFile, ...]
    about: Mapping[str, Any]  # mounts, container and build, as the manifest spells them


@dataclass(frozen=True, slots=True, kw_only=True)
class TreePart:
    """A file of a tree as a range of a layer's uncompressed blob."""

    file: TreeFile
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """A reference to content, as in the OCI image specification."""

    media_type: str
    digest: str  # `sha256:` and 64 hexadecimal digits
    size: int
    annotations: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def to_json(self) -> dict[str, Any]:
        """The descriptor as the specification spells it."""
        spelled: dict[str, Any] = {
            "mediaType": self.media_type,
            "digest": self.digest,
            "size": self.size,
        }
        if self.annotations:
            spelled["annotations"] = dict(sorted(self.annotations.items()))
        return spelled


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerOptions:
    """How the layers that a build adds are made."""

    order: LayerOrder = "base-first"
    compression: Compression = "none"
    format: LayerFormat = "plain"
    max_size: int | None = None  # bytes above which a weights file is split; None: the default
    reads_base: bool = True  # the base's files decide where ours go


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer of an image. Digests are empty until the bytes have been seen."""

    role: LayerRole
    blob: Blob  # uncompressed, if `compression` is to be our own
    media_type: str = MEDIA_LAYER
    compression: Compression = "none"
    compressed_size: int | None = None  # of the blob as it travels, where we compress it
    digest: str = ""  # of the blob as it travels
    diff_id: str = ""  # of the uncompressed tar; equals `digest` for our own layers
    created_by: str = ""  # one line for the image history
    content: str = ""  # digest over what its files hold, where that is known; in no manifest
    believed: str = ""  # id of the key whose claim gave `digest`, or `cache`: it was not read
    kept: str = ""  # digest by the artifact cache: it counts where all outputs have that blob
    mount_from: str = ""  # `HOST/REPOSITORY` that is known to hold the blob
    annotations: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    parts: tuple[TreePart, ...] = ()  # files of a tree that are read with it, by their offset
    twin: Layer | None = None  # a second blob of the same read: ours, between its first and last
    # segment, which are inline; of the second manifest of an index

    @property
    def size(self) -> int:
        """Bytes as the layer travels; before they have been compressed, at most about that."""
        return self.blob.size if self.compressed_size is None else self.compressed_size

    @property
    def is_sized(self) -> bool:
        """Return whether the size is known; False before the layer is compressed."""
        return self.compression == "none" or self.compressed_size is not None


@dataclass(frozen=True, slots=True)
class Platform:
    """Platform of a manifest, in Go's terms: `linux`, `amd64`."""

    os: str = "linux"
    architecture: str = "amd64"

    def __str__(self) -> str:
        return f"{self.os}/{self.architecture}"


def stated_time(created: object) -> str:
    """Return the creation time of an image; "" for the epoch, which images have that state none."""
    text = str(created or "")
    return "" if text.startswith("1970-01-01T00:00:00") else text


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseImage:
    """An image to build upon, known by digest, never unpacked."""

    reference: str  # as the user or the container catalog named it
    digest: str  # of the chosen platform's manifest; "" for `scratch`
    platform: Platform
    layers: tuple[Layer, ...]
    config: Mapping[str, Any]  # the whole image configuration, so that nothing is lost


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """A command that a container engine runs inside a container; status 0 means healthy."""

    path: str  # path that the command requests
    command: tuple[str, ...]
    interval_s: int
    timeout_s: int
    start_period_s: int  # failures count after it only
    start_interval_s: int  # between checks until then; Docker 25 and newer
    retries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeConfig:
    """Configuration that our image adds to its base's. Empty: keep the base's."""

    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    port: int | None = None
    health: HealthCheck | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSpec:
    """An image before its bytes have been seen: base layers first, then ours."""

    base: BaseImage
    layers: tuple[Layer, ...]
    runtime: RuntimeConfig
    created: str  # RFC 3339; fixed, so that equal inputs give equal digests
    annotations: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    tree: ModelTree | None = None  # that is written beside it
    beside: tuple[Layer, ...] = ()  # files of the tree that are in none of `layers`


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Claim:
    """A layer of this role, content and size is the blob `digest`, uncompressed."""

    role: str
    content: str  # names the layer's files: `images.remote_layers.content_digest`
    size: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedImage:
    """An image whose every digest is known: configuration and manifest are final."""

    config: bytes
    manifest: bytes
    config_descriptor: Descriptor
    manifest_descriptor: Descriptor
    layers: tuple[Descriptor, ...]
    tree: bytes = b""  # the manifest of the tree that is written beside it
    index: SealedIndex | None = None  # where the image has a second form

    @property
    def named(self) -> Descriptor:
        """What a tag names: the index where there is one."""
        return self.index.descriptor if self.index else self.manifest_descriptor

    @property
    def digest(self) -> str:
        return self.named.digest

    @property
    def plain(self) -> SealedImage:
        """The image by its plain manifest alone."""
        return replace(self, index=None)

    @property
    def forms(self) -> tuple[SealedImage, ...]:
        """The image in each of its forms, the plain one first; none of them has an index."""
        return (self.plain, *(self.index.others if self.index else ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedIndex:
    """An index of an image's forms; the plain one is its first entry."""

    document: bytes
    descriptor: Descriptor
    others: tuple[SealedImage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRef:
    """Location of a written image, by digest."""

    target: str  # the output as the user wrote it
    name: str  # what to give to a container engine or registry client
    digest: str

    def __str__(self) -> str:
        return f"{self.name}@{self.digest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Result of writing an image."""

    image: SealedImage
    layers: tuple[Layer, ...]  # with their digests
    refs: tuple[ImageRef, ...]
    trees: tuple[ImageRef, ...] = ()  # outputs that are trees, by the digest of their manifest
    layers_known: int  # not read: the digest was known and every sink had the bytes
    layers_streamed: int
    # SHA-256 of files whose sources state none, as they passed; hexadecimal
    files: Mapping[Blob, str] = field(default_factory=lambda: MappingProxyType({}))
    claims: tuple[Claim, ...] = ()  # of the layers whose digests follow from verified contents


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """An artifact that is attached to an image: a manifest whose `subject` is the image.

    Signatures of earlier versions of cosign name no subject: a tag made of the digest ties them.
    """

    manifest: bytes
    blobs: tuple[bytes, ...]  # all that the manifest names: configuration and layers
    tag: str = ""  # `sha256-HEX.sig` and the like, in place of a subject
