"""Conversion between a step and the order that a node receives."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping

from artifact_cache.key import plain
from packager.core.image import Blob, Computed, FileRange, Inline, RemoteRange, Segment
from packager.core.model import ModelFile
from packager.core.order import ORDER_VERSION, OrderedFile, OrderedPart, StepOrder
from packager.core.recipe import Step, StepInput
from packager.optimize.keys.documents import parse_document

# Fields of a step that an order leaves out: a step in an image runs where the image is, and the
# submitting machine chose the number of GPUs.
LEFT_OUT = frozenset({"image", "places", "gpu_use"})


def make_order(step: Step, digest: Callable[[ModelFile], str]) -> StepOrder:
    """Describe a step that has a key for another machine.

    `digest` returns the sha256 of a local file that does not state it.
    """
    assert step.key is not None
    return StepOrder(
        order=ORDER_VERSION,
        name=step.name,
        tool=step.tool,
        gives=step.gives,
        parameters=dict(step.parameters),
        inputs={
            role: tuple(_ordered(file, digest) for file in given.files)
            for role, given in step.inputs.items()
        },
        env=dict(step.env),
        key=plain(step.key),
        needs=step.needs,
        labels=dict(step.labels),
        gpus=step.gpus,
        gpu=step.gpu,
        threads=step.threads,
        carried=tuple(file.path for file in step.carried),
        config=dict(step.config) if step.config is not None else None,
        tensors=step.tensors,
        keeps_work=step.resumable,
        holds_weights=step.holds_weights,
        timeout_s=step.timeout_s,
        quiet_s=step.quiet_s,
    )


def make_step(order: StepOrder, inputs: Mapping[str, tuple[ModelFile, ...]]) -> Step:
    """Return the step of an order with files as they were found on this machine.

    Raises ValueError where its key document is of no known kind, or its environment is
    another than its key says.
    """
    return Step(
        name=order.name,
        tool=order.tool,
        gives=order.gives,
        parameters=order.parameters,
        inputs={role: StepInput(files=files) for role, files in inputs.items()},
        env=order.env,
        key=parse_document(order.key),
        needs=order.needs,
        labels=order.labels,
        gpus=order.gpus,
        gpu=order.gpu,
        threads=order.threads,
        carried=tuple(
            ModelFile(path=path, role="other", content=Inline(b"")) for path in order.carried
        ),
        config=order.config,
        tensors=order.tensors,
        resumable=order.keeps_work,
        holds_weights=order.holds_weights,
        timeout_s=order.timeout_s,
        quiet_s=order.quiet_s,
    )


def is_on_disk(file: ModelFile) -> bool:
    """Whether a file has bytes of this machine, its disk's or computed ones, which others lack."""
    return any(isinstance(segment, FileRange | Computed) for segment in _segments(file))


def segments_of(file: OrderedFile) -> tuple[Inline | RemoteRange, ...] | None:
    """Return the parts of a file to send or fetch; None for a file on a disk.

    Raises ValueError for invalid base64.
    """
    return None if file.parts is None else tuple(map(_segment, file.parts))


def _ordered(file: ModelFile, digest: Callable[[ModelFile], str]) -> OrderedFile:
    on_disk = is_on_disk(file)
    content = file.content
    whole = isinstance(content, FileRange) and not content.offset
    return OrderedFile(
        path=file.path,
        role=file.role,
        size=file.size,
        sha256=file.sha256 or (digest(file) if on_disk else ""),
        executable=file.executable,
        parts=None if on_disk else tuple(map(_part, _segments(file))),
        place=content.path if whole and isinstance(content, FileRange) else "",
        origin=file.origin if on_disk else "",
    )


def _segments(file: ModelFile) -> tuple[Segment, ...]:
    return file.content.segments if isinstance(file.content, Blob) else (file.content,)


def _part(segment: Segment) -> OrderedPart:
    match segment:
        case Inline(data):
            return OrderedPart(data=base64.b64encode(data).decode())
        case RemoteRange():
            return OrderedPart(
                url=segment.url,
                offset=segment.offset,
                length=segment.length,
                in_order=segment.in_order,
            )
    raise TypeError("bytes on this machine's disk are in no order")


def _segment(part: OrderedPart) -> Inline | RemoteRange:
    if not part.url:
        return Inline(base64.b64decode(part.data, validate=True))
    return RemoteRange(url=part.url, offset=part.offset, length=part.length, in_order=part.in_order)
