"""`packager base slim` between layouts, archives of engines and a registry, without a proof."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commandline import TINY, Packager
from tests.support.doubles.registry import FakeRegistry
from tests.support.made_layers import (
    base_of,
    file,
    files_after,
    layer_of,
    tar_of,
    unpacked,
    write_layout,
)

MAN = "usr/share/man/man1/page"
LARGE = b"m" * 1_200_000


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    """Start a registry that remembers what it was sent."""
    with FakeRegistry() as started:
        yield started


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Return a layout with a base of four layers, in every form that layers travel in."""
    place = tmp_path / "base"
    layers = [
        layer_of(tar_of([file("bin/sh", b"shell")])),
        layer_of(tar_of([file("usr/a", b"a" * 3000), file(f"{MAN}1", LARGE)]), "gzip"),
        layer_of(tar_of([file("usr/b", b"b"), file(f"{MAN}2", LARGE)]), "zstd"),
        layer_of(tar_of([file("usr/c", b"c"), file(f"{MAN}3", LARGE)])),
    ]
    write_layout(place, base_of(layers, config={"Env": ["A=b"], "Entrypoint": ["/bin/sh"]}))
    return place


def test_a_dry_run_says_what_would_go(packager: Packager, base: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    done = packager("base", "slim", f"oci:{base}", "--dry-run", status=0)

    assert "3.6 MB      3  documentation" in done.out
    assert "kernels-of-other-gpus is left out: depends on the machine (--instance)" in done.out
    assert [one for one in sorted(tmp_path.rglob("*")) if one not in before] == []


def test_the_slim_base_has_everything_else_and_says_what_it_was_made_from(
    packager: Packager, base: Path, tmp_path: Path
) -> None:
    source = json.loads((base / "index.json").read_text())["manifests"][0]["digest"]
    words = ("base", "slim", f"oci:{base}", f"oci:{tmp_path / 'slim'}", "--no-prove")
    caches = tmp_path / "caches"
    done = packager(*words, "--format", "json", env={"XDG_CACHE_HOME": str(caches)}, status=0)
    again = packager(*words[:-2], f"oci:{tmp_path / 'twice'}", "--no-prove", "--format", "json")

    record = json.loads(done.out)
    assert record["from"] == source
    assert record["digest"] == json.loads(again.out)["digest"]
    assert record["proof"] is None
    assert [one["state"] for one in record["layers"]] == ["kept", *["rewritten"] * 3]
    shown = json.loads(packager("inspect", f"oci:{tmp_path / 'slim'}", "--format", "json").out)
    assert shown["digest"] == record["digest"]
    assert json.loads(shown["runtime"]["labels"]["dev.packager.slim"])["from"] == source
    assert shown["runtime"]["entrypoint"] == ["/bin/sh"]
    assert shown["runtime"]["env"] == ["A=b"]
    kinds = [one["media_type"].rpartition("layer.v1.")[2] for one in shown["layers"]]
    assert kinds == ["tar", "tar+gzip", "tar+zstd", "tar"]
    assert list((caches / "packager").iterdir()) == []


def test_a_registry_gets_the_new_layers_alone_and_a_build_uses_the_base(
    packager: Packager, base: Path, tmp_path: Path, registry: FakeRegistry
) -> None:
    name = f"{registry.host}/bases/made"
    assert packager("copy", f"oci:{base}", f"{name}:1").status == 0
    done = packager(
        "base", "slim", f"{name}:1", f"{name}:slim", "--no-prove", "--format", "json", status=0
    )

    record = json.loads(done.out)
    kept = record["layers"][0]
    assert kept["state"] == "kept"
    assert kept["digest"] == kept["from"]
    packager("inspect", f"{name}:slim", "--format", "json", status=0)

    packager(
        *("build", "--model", str(TINY), "--instance", "local", "--base", f"{name}:slim"),
        *("--output", f"oci:{tmp_path / 'built'}", "--quiet"),
        status=0,
    )
    shown = json.loads(packager("inspect", f"oci:{tmp_path / 'built'}", "--format", "json").out)
    assert shown["base_digest"] == record["digest"]
    assert "dev.packager.slim" not in shown["runtime"]["labels"]


def test_destination_and_proof_come_first(packager: Packager, base: Path, tmp_path: Path) -> None:
    nowhere = packager("base", "slim", f"oci:{base}")
    gone = {"DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    unproven = packager("base", "slim", f"oci:{base}", f"oci:{tmp_path / 's'}", env=gone)
    other = packager(
        *("base", "slim", f"oci:{base}", f"oci:{tmp_path / 's'}", "--instance", "ml.g5.xlarge")
    )

    assert (nowhere.status, "no destination is given" in nowhere.err) == (2, True)
    assert (unproven.status, "--no-prove" in unproven.err) == (69, True)
    assert (other.status, "cannot be started here" in other.err) == (2, True)
    assert not (tmp_path / "s").exists()


def test_a_hostile_layer_ends_typed_and_leaves_nothing(packager: Packager, tmp_path: Path) -> None:
    layer = layer_of(tar_of([file("../../etc/cron.d/x", b"x"), file(MAN, LARGE)]))
    write_layout(tmp_path / "base", base_of([layer]))
    done = packager(
        *("base", "slim", f"oci:{tmp_path / 'base'}", f"oci:{tmp_path / 'slim'}", "--no-prove"),
        status=65,
    )

    assert "cannot be used: a name in it leads out of the layer" in done.err
    assert not (tmp_path / "slim").exists()


def test_all_files_stay_but_those_that_went(packager: Packager, base: Path, tmp_path: Path) -> None:
    packager(
        *("base", "slim", f"oci:{base}", f"oci:{tmp_path / 'slim'}", "--no-prove", "--quiet"),
        *("--keep", "usr/share/man/man1/page3"),
        status=0,
    )
    manifest = json.loads(packager("inspect", f"oci:{tmp_path / 'slim'}", "--format", "json").out)
    tars = []
    for one in manifest["layers"]:
        path = tmp_path / "slim/blobs/sha256" / one["digest"].removeprefix("sha256:")
        tars.append(unpacked(path.read_bytes(), one["media_type"]))

    assert files_after(tars) == {
        "bin/sh": b"shell",
        "usr/a": b"a" * 3000,
        "usr/b": b"b",
        "usr/c": b"c",
        f"{MAN}3": LARGE,
    }
