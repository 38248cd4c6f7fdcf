"""Choice of the sinks that images are written to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from packager.cli.plugins.contexts import SinkContext
from packager.cli.plugins.rows import SinkTraits
from packager.cli.plugins.tables import SINKS
from packager.cli.wiring.registries import Clients
from packager.cli.wiring.settings import Settings, digests_file
from packager.core.errors import UsageError
from packager.core.image import Attached, BaseImage, ImageSpec, SealedImage, Written
from packager.core.ports import (
    ImageSink,
)
from packager.core.references import ImageTarget
from packager.images.blobs import BlobReader
from packager.images.claim_key import ClaimKeys
from packager.images.compression import codec, not_for_engines
from packager.images.digest_index import DigestIndex
from packager.images.target import DIRECTORY, directory_of

if TYPE_CHECKING:
    from packager.core.record import Transfer


def sinks_for(outputs: Sequence[ImageTarget], context: SinkContext) -> list[ImageSink]:
    """Return a sink for each output, in the order in which their kinds are written.

    An engine can then be served from a layout's copy instead of the weights,
    and a second layout links to the blobs of the first.
    """
    named = [output.text for output in outputs]
    if twice := next((text for text in named if named.count(text) > 1), None):
        raise UsageError(f"output {twice!r} is named twice", hint="name each output once")
    if context.sparse_base and not any(traits_of(one).takes_sparse_base for one in outputs):
        raise UsageError(
            "--sparse-base is for layouts, and no output is one", hint="add --output oci:DIR"
        )
    _refuse_same_tree(outputs)
    sinks: list[ImageSink] = []
    for output in sorted(outputs, key=lambda output: traits_of(output).order):
        make = SINKS.of_target(output).make
        sinks.append(make(output, replace(context, beside=tuple(sinks))))
    return sinks


def _refuse_same_tree(outputs: Sequence[ImageTarget]) -> None:
    """Refuse two trees in one directory: each would wait for the other."""
    directories = [
        directory_of(output).resolve() for output in outputs if output.scheme == DIRECTORY
    ]
    if len(set(directories)) < len(directories):
        raise UsageError("two outputs are trees in one directory", hint="name one of them")


def sink_context(settings: Settings, reader: BlobReader, clients: Clients) -> SinkContext:
    """Return the context of the sinks of one run."""
    return SinkContext(
        reader=reader,
        clients=clients,
        state_file=digests_file(settings),
        sparse_base=settings.sparse_base,
        verify=settings.verify,
        claim_keys=claim_keys_for(settings),
        on_warning=settings.on_warning,
        on_event=settings.on_event,
    )


def kinds_of(outputs: Sequence[ImageTarget]) -> Literal["images", "trees", "both"]:
    """Return the kinds of a build's outputs; images where there are no outputs."""
    are_trees = {traits_of(output).holds_tree for output in outputs}
    if are_trees == {True}:
        return "trees"
    return "both" if True in are_trees else "images"


def refuse_trees(outputs: Sequence[ImageTarget], command: str) -> None:
    """Refuse outputs that hold files for a command that writes images."""
    tree = next((output for output in outputs if traits_of(output).holds_tree), None)
    if tree is not None:
        raise UsageError(
            f"{tree.text!r} holds a model's files, and `packager {command}` writes images",
            hint=f"have it built: packager build … --output {tree.text}",
        )


def traits_of(output: ImageTarget) -> SinkTraits:
    """Return the traits of an output's kind, before a sink is made."""
    return SINKS.of_target(output).traits


def claim_keys_for(settings: Settings) -> Callable[[], ClaimKeys]:
    """Return a cached look-up of the key for claims; it raises for an unusable key."""

    @cache
    def keys() -> ClaimKeys:
        found = ClaimKeys(settings.environment, settings.on_warning)
        found.find()
        return found

    return keys


def check_compression(settings: Settings) -> None:
    """Refuse compressed layers where the outputs, or this installation, do not support them."""
    if settings.compression == "none":
        return
    if not all(traits_of(output).takes_compressed for output in settings.outputs):
        raise not_for_engines()
    codec()


def warn_of_layer_format(settings: Settings) -> None:
    """Warn which outputs take the plain layers only, where file systems were requested too."""
    if settings.layer_format != "erofs":
        return
    plain = [one.text for one in settings.outputs if not traits_of(one).keeps_index]
    if plain:
        settings.on_warning(
            f"{', '.join(map(repr, plain))} takes the plain layers: only registries and layouts "
            "keep the file systems of --layer-format erofs"
        )


def record_places(sinks: Iterable[ImageSink]) -> tuple[Path, ...]:
    """Return the files beside images in which the build record is kept, too."""
    return tuple(sink.record_path for sink in sinks if sink.record_path is not None)


def attach_to_all(
    sinks: Iterable[ImageSink],
    image: SealedImage,
    artifacts: Sequence[Attached],
    *,
    required: bool = False,
) -> None:
    """Attach artifacts to the image wherever it is, in outputs that keep such things."""
    for sink in sinks:
        sink.attach(image, artifacts, required=required)


def preflight_all(sinks: Iterable[ImageSink]) -> None:
    """Check every output before work begins: hours of download must not end at a wrong password."""
    for sink in sinks:
        sink.preflight()


def check_base_for(sinks: Iterable[ImageSink], base: BaseImage) -> None:
    """Refuse a base whose layers an output's engine does not unpack, before any work."""
    for sink in sinks:
        sink.check_base(base)


def write_out(
    image: ImageSpec,
    sinks: Sequence[ImageSink],
    reader: BlobReader,
    settings: Settings,
    *,
    sealed: SealedImage | None = None,
) -> tuple[Written, Transfer]:
    """Write an image to every sink, and report the bytes moved."""
    from packager.core.record import Transfer
    from packager.images.tee import write_image

    written = write_image(
        image,
        sinks,
        reader=reader,
        index=DigestIndex(digests_file(settings)),
        on_event=settings.on_event,
        expect_digests=settings.repeat.digests if settings.repeat else (),
        sealed=sealed,
        verify=settings.verify,
        may_compute=settings.on_miss != "refuse",
    )
    return written, Transfer(
        bytes_read=reader.bytes_read,
        bytes_sent=sum(sink.bytes_sent for sink in sinks),
        layers_known=written.layers_known,
        layers_streamed=written.layers_streamed,
    )
