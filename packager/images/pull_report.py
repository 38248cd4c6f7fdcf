"""Hints for pulls, for people and programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from packager.core.reports.text import table_lines, wrapped
from packager.core.text import joined
from packager.core.units import decimal
from packager.images.pull_hints import PulledLayer, PullHints, packed_of
from packager.images.stored import StoredImage

_FINEST_S = 600  # from there on minutes


def pulled_layers(image: StoredImage) -> list[PulledLayer]:
    """Return the layers of an image as a node pulls them."""
    return [
        PulledLayer(
            digest=layer.descriptor.digest,
            size=layer.size,
            packed=packed_of(layer.descriptor.media_type),
        )
        for layer in image.layers
    ]


def hints_document(hints: PullHints) -> dict[str, Any]:
    """Return the hints as JSON's values."""
    document = asdict(hints)
    document["files"] = [{"path": path, "text": text} for path, text in hints.files]
    return document


def hints_text(hints: PullHints) -> str:
    """Return the hints as text: the times, the settings, the files."""
    about = "about " if hints.estimated else ""
    written = hints.down_bytes + hints.out_bytes
    facts = [
        ("pulls", f"{decimal(hints.down_bytes)} in {hints.layers} layers"),
        ("writes", f"{about}{decimal(written)}: each layer as it comes, and unpacked"),
        ("network", f"{decimal(hints.bandwidth_bytes_s)}/s, {hints.connections} connections"),
    ]
    times = [
        (time.disk, _seconds(time.by_default), _seconds(time.tuned), time.bound)
        for time in hints.times
    ]
    settings = [(one.program, one.name, one.value) for one in hints.settings]
    lines: list[str] = [f"{label:<11}{value}" for label, value in facts]
    lines += ["", *table_lines(("disk", "by default", "so set", "waits for"), times)]
    lines += ["", *table_lines(("of", "setting", "value"), settings), ""]
    lines += [
        line
        for one in hints.settings
        for line in wrapped("", f"{_last(one.name)}: {one.why} ({one.source})")
    ]
    for note in hints.notes:
        lines += wrapped("note", note)
    for path, text in hints.files:
        lines += ["", f"{path}:", *_indented(text.splitlines())]
    return joined(lines)


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _seconds(seconds: float) -> str:
    """Write a predicted time with two digits: its error is up to a third."""
    if seconds >= _FINEST_S:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
