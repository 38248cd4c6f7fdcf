"""Where images go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from packager import plugins
from packager.adapters.blobs import BlobReader
from packager.adapters.claim_key import ClaimKeys
from packager.adapters.digest_index import DigestIndex
from packager.adapters.packing import NotForEngines, codec
from packager.adapters.seen_blobs import SeenBlobs
from packager.adapters.sinks.layout import split_layout_reference
from packager.adapters.sinks.tee import write_image
from packager.core.events import EventSink, ignore
from packager.core.image import ImageSpec, SealedImage, Written
from packager.core.record import Transfer
from packager.errors import UsageError
from packager.ports import ImageSink, Reachable
from packager.wiring.registries import Clients
from packager.wiring.settings import Settings, digests_file, ignore_warning


def sinks_for(
    outputs: Sequence[str],
    reader: BlobReader,
    clients: Clients,
    state_file: Path,
    *,
    sparse_base: bool = False,
    keys: ClaimKeys | None = None,
    on_warning: Callable[[str], None] = ignore_warning,
    on_event: EventSink = ignore,
) -> list[ImageSink]:
    """Make a sink for each output. Layouts come first and engines last.

    An engine can then be served from the layout's copy instead of the weights,
    and a second layout links to the blobs of the first.
    """
    if len(set(outputs)) != len(outputs):
        raise UsageError("an output is named twice", hint="name each output once")
    if sparse_base and not any(text.startswith("oci:") for text in outputs):
        raise UsageError(
            "--sparse-base is for layouts, and no output is one", hint="add --output oci:DIR"
        )
    layouts = [split_layout_reference(text[4:]) for text in outputs if text.startswith("oci:")]
    if len({root.resolve() for root, _ in layouts}) != len(layouts):
        raise UsageError(
            "two outputs are images in one layout directory",
            hint="name one, and build again for the other: nothing is read again",
        )
    order = {"oci": 0, "registry": 1, "docker": 2}
    sinks: list[ImageSink] = []
    for output in sorted(outputs, key=lambda text: order[plugins.scheme_of(text, plugins.SINKS)]):
        scheme = plugins.scheme_of(output, plugins.SINKS)
        sink_type = plugins.load(plugins.SINKS, scheme)
        if scheme == "registry":
            sinks.append(
                sink_type(
                    output,
                    clients=clients(),
                    seen=SeenBlobs(state_file),
                    keys=keys,
                    on_warning=on_warning,
                )
            )
        elif scheme == "docker":
            sinks.append(sink_type(output, reader=reader, on_event=on_event))
        else:
            sinks.append(sink_type(output, sparse_base=sparse_base, beside=tuple(sinks)))
    return sinks


def claim_keys_for(settings: Settings) -> ClaimKeys | None:
    """Look up the key for claims, which only registries keep. One that must not be used raises."""
    if not any(plugins.scheme_of(text, plugins.SINKS) == "registry" for text in settings.outputs):
        return None
    keys = ClaimKeys(settings.environment, settings.on_warning)
    keys.find()
    return keys


def check_compression(settings: Settings) -> None:
    """Refuse what the outputs, or this installation, cannot do with compressed layers."""
    if settings.compression == "none":
        return
    if any(plugins.scheme_of(output, plugins.SINKS) == "docker" for output in settings.outputs):
        raise NotForEngines
    codec()


def reach_all(sinks: Iterable[ImageSink]) -> None:
    """Ask every output that can be asked: a download of hours must not end at a wrong password."""
    for sink in sinks:
        if isinstance(sink, Reachable):
            sink.reach()


def write_out(
    image: ImageSpec,
    sinks: Sequence[ImageSink],
    reader: BlobReader,
    settings: Settings,
    *,
    sealed: SealedImage | None = None,
) -> tuple[Written, Transfer]:
    """Write an image to every sink, and say what moved."""
    written = write_image(
        image,
        sinks,
        reader=reader,
        index=DigestIndex(digests_file(settings)),
        on_event=settings.on_event,
        expect_digest=settings.repeat.digest if settings.repeat else "",
        sealed=sealed,
        verify=settings.verify,
    )
    return written, Transfer(
        bytes_read=reader.bytes_read,
        bytes_sent=sum(getattr(sink, "bytes_sent", 0) for sink in sinks),
        layers_known=written.layers_known,
        layers_streamed=written.layers_streamed,
    )
