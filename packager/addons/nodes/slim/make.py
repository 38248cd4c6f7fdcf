"""A slim base from start to end: read, decide, rewrite, prove, write, record.

Outputs are written only after the proof has succeeded.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packager.addons.nodes.slim.image import slim_image
from packager.addons.nodes.slim.record import (
    MEDIA_SLIM,
    SlimBase,
    SlimProof,
    attached_document,
    slim_document,
)
from packager.addons.nodes.slim.rewrite import rewrite_layers
from packager.addons.nodes.slim.rules import ChosenRules
from packager.addons.nodes.slim.scan import List, scan_image
from packager.core.events import EventSink, working
from packager.core.image import Attached, BaseImage, ImageRef, ImageSpec, SealedImage, Written
from packager.core.record import Transfer
from packager.images.attached import attach_document
from packager.images.rootfs.reading import Chunks

STAGES = ("read", "rewrite", "layers", "publish")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlimMade:
    """A slim base that was written."""

    slim: SlimBase
    proof: SlimProof | None
    refs: tuple[ImageRef, ...]
    document: dict[str, Any]  # the record


def look(base: BaseImage, chosen: ChosenRules, list_layers: List, on_event: EventSink) -> SlimBase:
    """Read what the layers hold, where that is not known yet, and decide what would go."""
    with working(on_event, "read", base.reference):
        scan = scan_image(base, chosen, list_layers)
    return SlimBase(base=base, chosen=chosen, scan=scan)


def make_slim(
    base: BaseImage,
    chosen: ChosenRules,
    *,
    list_layers: List,
    chunks: Chunks,
    work: Callable[[], AbstractContextManager[Path]],
    prove: Callable[[ImageSpec, Path], SlimProof] | None,
    write: Callable[[ImageSpec], tuple[Written, Transfer]],
    attach: Callable[[SealedImage, Attached], None],
    on_event: EventSink,
) -> SlimMade:
    """Make the slim base and write it; raise before writing if the proof fails."""
    slim = look(base, chosen, list_layers, on_event)
    with work() as place:
        with working(on_event, "rewrite"):
            layers = rewrite_layers(base, slim.scan, place, chunks)
        slim = SlimBase(base=base, chosen=chosen, scan=slim.scan, layers=layers)
        spec = slim_image(slim)
        proof = prove(spec, place) if prove else None
        written, _ = write(spec)
    document = slim_document(slim, written.image.digest, written.refs, proof)
    subject = written.image.manifest_descriptor
    attach(written.image, attach_document(subject, attached_document(document), MEDIA_SLIM))
    return SlimMade(slim=slim, proof=proof, refs=written.refs, document=document)
