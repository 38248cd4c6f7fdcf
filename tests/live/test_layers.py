"""Layers in other orders, other forms and with odd files, read by tools that are not ours."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from packager.core.image import Blob, FileRange, Inline
from packager.images.tar import ALIGNMENT, TarEntry, make_tar
from tests.conftest import need
from tests.live.building import build
from tests.live.image_tools import skopeo, unpacked
from tests.support.commandline import TINY, Packager
from tests.support.image_schemas import CONFIG, INDEX, LAYOUT, MANIFEST, check_oci
from tests.support.places import files_below, sha256_in
from tests.support.written_layouts import WrittenLayout

pytestmark = pytest.mark.live

MODEL = "opt/packager/model"


def check_documents(layout: Path) -> dict[str, Any]:
    """Hold every JSON document of a layout against its schema; give the manifest."""
    check_oci((layout / "oci-layout").read_bytes(), LAYOUT)
    check_oci((layout / "index.json").read_bytes(), INDEX)
    written = WrittenLayout(layout)
    check_oci(written.blob(written.digest).read_bytes(), MANIFEST)
    check_oci(written.blob(written.manifest["config"]["digest"]).read_bytes(), CONFIG)
    return written.manifest


@pytest.fixture
def base(engine: str) -> str:
    """An image of one program, in the engine."""
    import docker

    program = need("cat")
    libraries = re.findall(r"(/\S+) \(0x", subprocess.check_output(["ldd", program], text=True))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", dereference=True) as archive:
        archive.add(program, "bin/cat")
        for library in libraries:
            archive.add(library)
    docker.from_env().api.import_image_from_data(packed.getvalue(), "cat-base", "1")
    return "docker:cat-base:1"


def test_weights_below_the_base_are_read_by_a_program_of_the_base(
    packager: Packager, base: str, tmp_path: Path
) -> None:
    import docker

    env = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    outputs = ("--output", "docker:weights-first:1", "--layer-order", "weights-first")
    found, plain = (
        json.loads(build(packager, output, *more, "--format", "json", base=base, env=env).out)
        for output, more in (("oci:out", outputs), ("oci:plain", ()))
    )

    roles = [layer["role"] for layer in found["layers"]]
    assert roles == ["weights"] * 3 + ["model", "base", "config"]
    client = docker.from_env()
    said = client.containers.run(
        "weights-first:1", [f"/{MODEL}/config.json"], entrypoint="/bin/cat", remove=True
    )
    assert said == (TINY / "config.json").read_bytes()
    mine = {layer["digest"] for layer in check_documents(tmp_path / "out")["layers"]}
    its = {layer["digest"] for layer in check_documents(tmp_path / "plain")["layers"]}
    assert mine == its
    assert plain["digest"] != found["digest"]


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A model with names and sizes that archives get wrong."""
    model = tmp_path / "odd model"
    shutil.copytree(
        TINY,
        model,
        ignore=shutil.ignore_patterns("*.py", "*.md", "*requirements.txt", "__pycache__"),
    )
    long = "d" * 100 + "/" + "e" * 60
    (model / long).mkdir(parents=True)
    (model / long / ("n" * 80 + ".txt")).write_bytes(b"deep")
    (model / "a b").mkdir()
    (model / "a b" / "with  spaces.txt").write_bytes(b"spaced")
    (model / "ünïcödé 模型 – é.txt").write_bytes(b"letters")
    (model / ("ä" * 60 + ".txt")).write_bytes(b"120 bytes of name")
    (model / "empty.txt").write_bytes(b"")
    return model


def test_odd_files_are_the_same_for_every_reader(
    packager: Packager, engine: str, odd: Path, tmp_path: Path
) -> None:
    import docker

    build(packager, "oci:out", "--output", "docker:odd:1", model=odd)
    manifest = check_documents(tmp_path / "out")
    source = files_below(odd, sha256_in)
    assert {"empty.txt", "ünïcödé 模型 – é.txt", "a b/with  spaces.txt"} <= set(source)

    found = {}
    for layer in WrittenLayout(tmp_path / "out").layers:
        with tarfile.open(layer) as archive:
            found |= files_of(archive)
    assert source.items() <= found.items(), "tarfile"

    root = unpacked(f"{tmp_path}/out:latest", tmp_path / "bundle")
    assert source.items() <= files_below(root / MODEL, sha256_in).items(), "umoci"

    container = docker.from_env().containers.create("odd:1", command="never-started")
    try:
        exported = b"".join(container.export())
    finally:
        container.remove()
    with tarfile.open(fileobj=io.BytesIO(exported)) as archive:
        assert source.items() <= files_of(archive).items(), "Docker Engine"

    copied = tmp_path / "copied"
    skopeo(
        *("copy", "--preserve-digests", "--dest-oci-accept-uncompressed-layers"),
        *(f"oci:{tmp_path}/out:latest", f"oci:{copied}:latest"),
    )
    assert check_documents(copied)["layers"] == manifest["layers"], "skopeo"


def files_of(archive: tarfile.TarFile) -> dict[str, str]:
    """Digests of what lies below the model's directory."""
    found = {}
    for member in archive:
        if member.isfile() and member.name.startswith(f"{MODEL}/"):
            data = archive.extractfile(member).read()  # type: ignore[union-attr]
            found[member.name.removeprefix(f"{MODEL}/")] = hashlib.sha256(data).hexdigest()
    return found


def test_compressed_layers_are_what_skopeo_unpacks(packager: Packager, tmp_path: Path) -> None:
    build(packager, "oci:out", "--compression", "zstd")
    manifest = check_documents(tmp_path / "out")
    config = WrittenLayout(tmp_path / "out").config

    skopeo("copy", "--dest-decompress", f"oci:{tmp_path}/out:latest", f"dir:{tmp_path}/plain")

    assert all(layer["mediaType"].endswith(".tar+zstd") for layer in manifest["layers"])
    for diff_id in config["rootfs"]["diff_ids"]:
        data = (tmp_path / "plain" / diff_id.removeprefix("sha256:")).read_bytes()
        assert "sha256:" + hashlib.sha256(data).hexdigest() == diff_id


def test_a_file_over_eight_gib_keeps_its_size_for_every_reader(tmp_path: Path) -> None:
    """The layer is laid down with a hole for the data: readers go by the headers alone."""
    size = 9 * 1024**3 + 12_345
    source = tmp_path / "huge"
    with source.open("wb") as stream:
        stream.truncate(size)
    layer = make_tar(
        [
            TarEntry(path=f"/{MODEL}/huge", content=FileRange(path="huge", offset=0, length=size)),
            TarEntry(path=f"/{MODEL}/next", content=Inline(b"behind it")),
        ]
    )
    tar = tmp_path / "layer.tar"
    lay_down(layer, tar)

    with tarfile.open(tar) as archive:
        huge = archive.getmember(f"{MODEL}/huge")
        behind = archive.extractfile(f"{MODEL}/next").read()  # type: ignore[union-attr]
    listed = subprocess.check_output([need("tar"), "-tvf", str(tar)], text=True)
    extracted = subprocess.check_output([need("tar"), "-xOf", str(tar), f"{MODEL}/next"])

    assert (huge.size, huge.offset_data % ALIGNMENT, behind) == (size, 0, b"behind it")
    assert f" {size} " in listed
    assert extracted == b"behind it"


def lay_down(blob: Blob, path: Path) -> None:
    """Write a blob of which only our own bytes are not zero."""
    with path.open("wb") as stream:
        for segment in blob.segments:
            if isinstance(segment, Inline):
                stream.write(segment.data)
            else:
                stream.seek(segment.length, 1)
