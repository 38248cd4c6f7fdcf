"""Settings of nodes for an image's layers, and the time of its pull."""

from __future__ import annotations

import tomllib

import pytest
import yaml

from packager.core.reports.text import report_text
from packager.core.units import GIB, MIB, parse_rate
from packager.images.pull_hints import Disk, Packed, PulledLayer, make_hints, packed_of
from packager.images.pull_report import hints_document, hints_report, pulled_layers
from tests.support.cases import cases, read_tables, shows
from tests.support.stored_images import SERVING, image

TEN_GBIT = 1.25e9
GP3 = Disk(name="gp3", bytes_s=125 * MIB)
FAST = Disk(name="fast", bytes_s=20e9)


def layers(*sizes: int, packed: Packed = "none") -> list[PulledLayer]:
    return [
        PulledLayer(digest=f"sha256:{number}", size=size, packed=packed)
        for number, size in enumerate(sizes)
    ]


@pytest.mark.parametrize(("size", "measured"), [(140e9, 4585), (14e9, 443)])
def test_the_pulls_that_kserve_measured_are_predicted(size: float, measured: float) -> None:
    [time] = make_hints(layers(*[int(size / 14)] * 14), 12.5e9 / 8, [GP3]).times

    assert time.tuned == pytest.approx(measured, rel=0.05)
    assert time.bound == "disk"


def test_a_pull_takes_as_long_as_its_slowest_part() -> None:
    many = layers(*[4 * GIB] * 32)

    [network] = make_hints(many, TEN_GBIT / 10, [FAST]).times
    [disk] = make_hints(many, TEN_GBIT, [GP3]).times
    [unpacking] = make_hints(layers(40 * GIB, 4 * GIB), TEN_GBIT * 10, [FAST]).times

    assert (network.bound, disk.bound, unpacking.bound) == ("network", "disk", "unpacking")
    assert network.tuned == pytest.approx(32 * 4 * GIB / (TEN_GBIT / 10))
    assert unpacking.tuned == pytest.approx(40 * GIB / 333e6)  # one worker has the largest


def test_by_default_layers_come_over_three_connections_and_are_unpacked_one_by_one() -> None:
    [time] = make_hints(layers(*[4 * GIB] * 32), TEN_GBIT, [FAST]).times

    assert time.by_default == pytest.approx(max(128 * GIB / (3 * 87.5e6), 128 * GIB / 333e6))
    assert time.tuned == pytest.approx(128 * GIB / TEN_GBIT)


def test_by_default_one_large_layer_comes_over_one_connection() -> None:
    [time] = make_hints(layers(100 * GIB, packed="zstd"), TEN_GBIT, [FAST]).times

    assert time.by_default == pytest.approx(100 * GIB / 87.5e6)


@cases("there_are_connections_as_the_network_needs")
def test_there_are_connections_as_the_network_needs(bandwidth: str, connections: int) -> None:
    assert make_hints(layers(GIB), parse_rate(bandwidth), [FAST]).connections == connections


@pytest.mark.parametrize(
    ("sizes", "unpacks"), [((100,), 1), ((GIB, GIB, 5_000_000), 2), ((GIB,) * 90, 32), ((), 1)]
)
def test_large_layers_are_unpacked_at_once(sizes: tuple[int, ...], unpacks: int) -> None:
    assert make_hints(layers(*sizes), TEN_GBIT, [FAST]).unpacks == unpacks


def test_a_layer_that_is_there_twice_is_pulled_once() -> None:
    [one] = layers(GIB)

    hints = make_hints([one, one], TEN_GBIT, [FAST])

    assert (hints.layers, hints.down_bytes, hints.out_bytes) == (1, GIB, GIB)


def test_what_compressed_layers_unpack_to_is_an_estimate() -> None:
    hints = make_hints(layers(6 * GIB, packed="gzip"), TEN_GBIT, [FAST])

    assert hints.estimated
    assert hints.out_bytes == int(6 * GIB * 2.6)
    assert any("gzip" in note for note in hints.notes)


@cases("media_type")
def test_media_types_tell_how_layers_are_compressed(media_type: str, packed: str) -> None:
    assert packed_of(media_type) == packed


def test_the_files_hold_the_settings() -> None:
    hints = make_hints(layers(*[4 * GIB] * 20), TEN_GBIT, [FAST])
    (_, containerd), (_, soci), (_, eks) = hints.files

    found = {
        "containerd": tomllib.loads(containerd)["plugins"],
        "soci": tomllib.loads(soci)["pull_modes"]["parallel_pull_unpack"],
        "eks": yaml.safe_load(eks)["spec"],
    }
    assert shows(found, read_tables(__file__)["files"])
    # containerd leaves the transfer plugin, and with it parallel unpacking, for any other
    assert list(found["containerd"]["io.containerd.cri.v1.images"]) == ["discard_unpacked_layers"]


def test_one_huge_layer_among_others_is_told() -> None:
    hints = make_hints(layers(40 * GIB, GIB), TEN_GBIT, [FAST])

    assert any("--max-layer-size" in note for note in hints.notes)


def test_more_than_fastimagepull_does_is_told() -> None:
    assert any("FastImagePull" in note for note in make_hints(layers(GIB), 25e9, [FAST]).notes)
    assert make_hints(layers(GIB), TEN_GBIT, [FAST]).notes == ()


def test_every_setting_names_its_source() -> None:
    hints = make_hints(pulled_layers(image()), TEN_GBIT)

    assert hints.layers == len(SERVING)
    assert all(one.source and one.why for one in hints.settings)
    text = report_text(hints_report(hints))
    assert all(one.name in text for one in hints.settings)
    assert hints_document(hints)["files"][0]["path"] == "/etc/containerd/conf.d/pull.toml"
