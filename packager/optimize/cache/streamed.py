"""Layers of weights that were quantized while they were read: the cache keeps their digests.

An entry has no bytes of weights.  It is a hit where the outputs have its layers, or can take them
over from a repository that has them.  Layers are named by their contents, which follow from headers
and the digests of the source; where a base has directories with attributes of their own the same
files are other layers, and the entry has a second number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from artifact_cache.errors import CacheError, NotTaken
from packager.core.documents import NotStrict, parse_model
from packager.core.image import Claim, LayerFormat
from packager.images.erofs.metadata import EROFS_FORMAT
from packager.images.tar import TAR_FORMAT
from packager.optimize.keys.documents import QuantizedCheckpointKey, StreamedLayersKey

if TYPE_CHECKING:
    from artifact_cache.cache import ArtifactCache

FILE = "layers.json"
MAX_NUMBERS = 4  # ways in which bases place the same files
_MAX_BYTES = 256 * 1024

_STRICT = ConfigDict(strict=True, frozen=True, extra="forbid", validate_by_name=True)
Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]


class KeptLayer(BaseModel):
    """A layer by its contents, and the blob that it is."""

    model_config = _STRICT
    role: Literal["weights", "model"]
    content: Digest
    size: Annotated[int, Field(ge=0)]
    digest: Digest


class KeptLayers(BaseModel):
    """The layers of one build, and the repositories that it wrote them to."""

    model_config = _STRICT
    schema_version: Literal[1] = Field(default=1, alias="schema")
    layers: Annotated[tuple[KeptLayer, ...], Field(min_length=1, max_length=512)]
    repositories: Annotated[tuple[str, ...], Field(max_length=16)] = ()


def layers_key(
    key: QuantizedCheckpointKey, form: LayerFormat, number: int = 0
) -> StreamedLayersKey:
    """Return the key document of a checkpoint's layers."""
    fields = {name: getattr(key, name) for name in type(key).model_fields if name != "kind"}
    erofs = f" erofs {EROFS_FORMAT}" if form == "erofs" else ""
    return StreamedLayersKey(**fields, layers=f"tar {TAR_FORMAT}{erofs}", number=number)


def find_layers(cache: ArtifactCache, first: StreamedLayersKey) -> Iterator[KeptLayers]:
    """Yield what builds have kept of a checkpoint; an entry that is not understood ends it."""
    for number in range(MAX_NUMBERS):
        document = first.model_copy(update={"number": number})
        if cache.find(document) is None:  # a look-up that counts no miss
            return
        with TemporaryDirectory(prefix="packager-layers-") as place:
            into = Path(place, "entry")
            try:
                cache.take(document, into)
                data = (into / FILE).read_bytes()
                yield parse_model(KeptLayers, data, max_bytes=_MAX_BYTES)
            except (NotTaken, CacheError, OSError, NotStrict):
                return


def keep_layers(
    cache: ArtifactCache, first: StreamedLayersKey, made: KeptLayers, labels: Mapping[str, str]
) -> None:
    """Keep what a build has made, unless that is known; where it cannot be kept nothing is lost."""
    number, wanted = 0, set(made.layers)
    for found in find_layers(cache, first):
        if wanted.issubset(found.layers):
            return
        number += 1
    if number == MAX_NUMBERS:
        return

    def write(place: Path) -> None:
        (place / FILE).write_text(made.model_dump_json(by_alias=True), encoding="utf-8")

    document = first.model_copy(update={"number": number})
    with TemporaryDirectory(prefix="packager-layers-") as place, suppress(CacheError, OSError):
        cache.get_or_build(document, write, Path(place, "entry"), labels=labels, locks=False)


def kept_of(claims: tuple[Claim, ...], repositories: tuple[str, ...]) -> KeptLayers | None:
    """Return what is kept of a build's layers; None where nothing is proven of its weights."""
    layers = tuple(
        KeptLayer(role=role, content=one.content, size=one.size, digest=one.digest)
        for one in claims
        for role in ("weights", "model")
        if one.role == role
    )
    if not any(layer.role == "weights" for layer in layers):
        return None
    return KeptLayers(layers=layers, repositories=tuple(sorted(repositories))[:16])
