"""Layers compressed with zstd: smaller on the way, the same files, known the next time."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.support.commandline import TINY, Packager
from tests.support.doubles.models import write_model
from tests.support.doubles.registry import FakeRegistry
from tests.support.written_layouts import WrittenLayout

BUILD = ("build", "--instance", "local", "--base", "scratch", "--quiet", "--format", "json")
ZSTD = "application/vnd.oci.image.layer.v1.tar+zstd"
TAR = "application/vnd.oci.image.layer.v1.tar"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Random weights, which do not shrink, and zeros, which do."""
    path = write_model(tmp_path / "model", shards=3, hidden_size=512, intermediate_size=1024)
    shard = path / "model-00001-of-00003.safetensors"
    data = shard.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    shard.write_bytes(data[:start] + bytes(len(data) - start))
    return path


def unpacked(layout: Path, layer: dict[str, Any]) -> bytes:
    data = WrittenLayout(layout).blob(layer["digest"]).read_bytes()
    assert len(data) == layer["size"]
    if layer["mediaType"] == TAR:
        return data
    assert layer["mediaType"] == ZSTD
    plain = zstandard.ZstdDecompressor().decompress(data)  # needs the size in the frame
    assert zstandard.frame_content_size(data) == len(plain)
    return plain


def documents(layout: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    written = WrittenLayout(layout)
    return written.manifest, written.config


def test_compressed_layers_hold_the_same(packager: Packager, model: Path, tmp_path: Path) -> None:
    for how in ("none", "zstd", "auto"):
        packager(
            *BUILD, "--model", str(model), "--output", f"oci:{how}", "--compression", how, status=0
        )

    plain, config = documents(tmp_path / "none")
    for how, packed in (("zstd", [True] * 5), ("auto", [True, False, False])):
        manifest, its_config = documents(tmp_path / how)
        assert [layer["mediaType"] == ZSTD for layer in manifest["layers"]][: len(packed)] == packed
        assert its_config["rootfs"]["diff_ids"][:4] == config["rootfs"]["diff_ids"][:4]
        for one, other in zip(plain["layers"][:4], manifest["layers"][:4], strict=True):
            assert unpacked(tmp_path / how, other) == unpacked(tmp_path / "none", one)
        assert manifest["layers"][0]["size"] < plain["layers"][0]["size"] / 100


def test_a_second_build_reads_nothing_and_sends_nothing(packager: Packager, model: Path) -> None:
    with FakeRegistry() as registry:
        build = (*BUILD, "--model", str(model), "--output", f"{registry.host}/m:1")
        for how in ("zstd", "auto"):
            first = packager(*build, "--compression", how, status=0)
            make_old(model)
            again = packager(*build, "--compression", how)  # files are no longer racy
            third = packager(*build, "--compression", how, status=0)

            assert len({json.loads(done.out)["digest"] for done in (first, again, third)}) == 1
            transfer = json.loads(third.out)["transfer"]
            assert (transfer["bytes_read"], transfer["layers_streamed"]) == (0, 0)


def make_old(model: Path) -> None:
    """Wait until the index trusts the times of the files."""
    import time

    newest = max(path.stat().st_ctime for path in model.iterdir())
    time.sleep(max(0.0, newest + 2.2 - time.time()))


def test_an_upload_of_unknown_size_goes_out_in_one_pass(packager: Packager, model: Path) -> None:
    with FakeRegistry() as registry:
        done = packager(
            *BUILD, "--model", str(model), "--compression", "zstd",
            "--output", f"{registry.host}/m:1",
        status=0)  # fmt: skip

        record = json.loads(done.out)
        sizes = {layer["digest"]: layer["size"] for layer in record["layers"]}
        assert (
            record["transfer"]["bytes_read"]
            < sum(path.stat().st_size for path in model.iterdir()) + 1_000_000
        )
        for digest, size in sizes.items():
            stored = registry.blobs.get(("m", digest))
            assert stored is None or len(stored) == size


def test_views_keep_the_compressed_layers(packager: Packager, tmp_path: Path) -> None:
    packager(*BUILD, "--model", str(TINY), "--output", "oci:out", "--compression", "zstd", status=0)

    for view in ("weights", "modelpack"):
        packager("copy", "oci:out", f"oci:{view}", "--view", view, status=0)

    weights, config = documents(tmp_path / "weights")
    pack, _ = documents(tmp_path / "modelpack")
    assert {layer["mediaType"] for layer in weights["layers"]} == {ZSTD}
    assert all(layer["mediaType"].endswith(".tar+zstd") for layer in pack["layers"])
    for layer, diff_id in zip(weights["layers"], config["rootfs"]["diff_ids"], strict=True):
        data = unpacked(tmp_path / "weights", layer)
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            assert archive.getmembers()
        assert diff_id != layer["digest"]


@pytest.mark.parametrize("how", ["zstd", "auto"])
def test_an_engine_that_may_be_old_is_refused_before_any_work(packager: Packager, how: str) -> None:
    done = packager(
        *BUILD, "--model", "/nowhere", "--output", "docker:m:1", "--compression", how, status=2
    )

    assert "Docker Engines before version 23" in done.err


def test_a_missing_library_is_said_before_any_work(packager: Packager, tmp_path: Path) -> None:
    (tmp_path / "zstandard.py").write_text("raise ImportError")
    done = packager(
        *BUILD, "--model", "/nowhere", "--output", "oci:out", "--compression", "zstd",
        env={"PYTHONPATH": str(tmp_path)},
    status=2)  # fmt: skip

    assert "pip install 'zstandard>=0.23'" in done.err
