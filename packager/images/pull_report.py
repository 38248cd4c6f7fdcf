"""Hints for pulls, for people and programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from packager.core.reports.report import Lines, Pair, Pairs, Report, Section, Words, plain_table
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


def hints_report(hints: PullHints) -> Report:
    """Return the times, the settings, the files."""
    about = "about " if hints.estimated else ""
    written = hints.down_bytes + hints.out_bytes
    facts = (
        Pair("pulls", f"{decimal(hints.down_bytes)} in {hints.layers} layers"),
        Pair("writes", f"{about}{decimal(written)}: each layer as it comes, and unpacked"),
        Pair("network", f"{decimal(hints.bandwidth_bytes_s)}/s, {hints.connections} connections"),
    )
    times = [
        (time.disk, _seconds(time.by_default), _seconds(time.tuned), time.bound)
        for time in hints.times
    ]
    settings = [(one.program, one.name, one.value) for one in hints.settings]
    why = [Words(f"{_last(one.name)}: {one.why} ({one.source})") for one in hints.settings]
    why += [Words(note, label="note") for note in hints.notes]
    by_disk = plain_table(("disk", "by default", "so set", "waits for"), times)
    files = (
        Section(
            key=f"file{at}",
            title=path,
            heading=f"{path}:",
            parts=(Lines(tuple(f"  {line}" for line in text.splitlines()), ""),),
        )
        for at, (path, text) in enumerate(hints.files)
    )
    return Report(
        title="Hints for pulls",
        sections=(
            Section(key="pulls", title="What is pulled", parts=(Pairs(facts),)),
            Section(key="times", title="How long it takes", parts=(by_disk,)),
            Section(
                key="settings",
                title="Settings",
                parts=(plain_table(("of", "setting", "value"), settings),),
            ),
            Section(key="why", title="Why", parts=tuple(why)),
            *files,
        ),
    )


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _seconds(seconds: float) -> str:
    """Write a predicted time with two digits: its error is up to a third."""
    if seconds >= _FINEST_S:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
