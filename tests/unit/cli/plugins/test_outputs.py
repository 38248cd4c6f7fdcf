"""Outputs by their rows: which are written first, and what they are given."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.cli.plugins.contexts import SinkContext
from packager.cli.wiring.outputs import record_places, sinks_for
from packager.cli.wiring.settings import parse_output
from packager.core.errors import UsageError
from packager.images.blobs import BlobReader
from packager.images.layout.sink import LayoutSink
from packager.images.registry.clients import RegistryClients


def context(place: Path, **changes: bool) -> SinkContext:
    return SinkContext(
        reader=BlobReader(), clients=RegistryClients, state_file=place / "state", **changes
    )


def test_layouts_are_written_first_and_engines_last(tmp_path: Path) -> None:
    words = ["docker:m:1", "r.example/m:1", f"oci:{tmp_path}/one", f"oci:{tmp_path}/two"]

    sinks = sinks_for(list(map(parse_output, words)), context(tmp_path))

    assert [sink.target for sink in sinks] == [words[2], words[3], words[1], words[0]]  # type: ignore[attr-defined]


def test_records_go_beside_layouts_alone(tmp_path: Path) -> None:
    words = ["docker:m:1", "r.example/m:1", f"oci:{tmp_path}/one:7"]

    sinks = sinks_for(list(map(parse_output, words)), context(tmp_path))

    assert record_places(sinks) == (tmp_path / "one.record.json",)


def test_only_layouts_are_sparse(tmp_path: Path) -> None:
    outputs = [parse_output("r.example/m:1"), parse_output(f"oci:{tmp_path}/one")]

    first, second = sinks_for(outputs, context(tmp_path, sparse_base=True))

    assert isinstance(first, LayoutSink)
    assert not isinstance(second, LayoutSink)
    with pytest.raises(UsageError, match="--sparse-base is for layouts"):
        sinks_for(outputs[:1], context(tmp_path, sparse_base=True))


def test_two_images_in_one_layout_directory_are_refused(tmp_path: Path) -> None:
    outputs = [parse_output(f"oci:{tmp_path}/one:a"), parse_output(f"oci:{tmp_path}/one:b")]

    with pytest.raises(UsageError, match="two outputs are images in one layout directory"):
        sinks_for(outputs, context(tmp_path))
