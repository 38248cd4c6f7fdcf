"""Images over odd bases: umoci shows every file of the base and of ours, or none was made."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import docker

from packager.cli.plugins.tables import SINKS
from packager.core.artifact import Artifacts
from packager.core.findings import errors_in
from packager.core.image import BaseImage, ImageSpec, Platform
from packager.core.model import ModelFile
from packager.core.serving import RenderedFile, ServingConfig
from packager.images.assemble import assemble_image, place_image
from packager.images.blobs import BlobReader
from packager.images.daemon.sink import DockerSink
from packager.images.layout.base import LayoutBase
from packager.images.rootfs.placement import AS_NAMED, PlacedFiles
from packager.images.rootfs.reading import LayerReader
from packager.images.rootfs.tree import ImageFiles
from packager.images.target import parse_layout_target, parse_target
from tests.live.image_tools import unpacked
from tests.support import tars
from tests.support.cases import Case, cases_of
from tests.support.layer_layouts import LINUX, MadeLayer, gzipped, plain, write_layout
from tests.support.made_images import layout_sink, whole
from tests.unit.images.test_write_image import Bench

cases = cases_of(__file__)

KINDS = {"d": tarfile.DIRTYPE, "f": tarfile.REGTYPE, "l": tarfile.SYMTYPE, "h": tarfile.LNKTYPE}
KINDS |= {"p": tarfile.FIFOTYPE, "c": tarfile.CHRTYPE}
SERVING = ServingConfig(files=(RenderedFile(path="/opt/packager/serving/c.json", data=b"{}"),))
OURS = {"/opt/packager/model/sub/a.safetensors": b"w" * 2**21, "/opt/packager/model/b": b"b"}
READ = """
import os, sys
os.chroot(sys.argv[1])
for path in sys.argv[2:]:
    sys.stdout.buffer.write(open(path, "rb").read())
"""


def member(text: str) -> tars.Member:
    """Return the entry of a table's line."""
    kind, name, *words = text.split(" ")
    fields: dict[str, Any] = {"mode": 0o755 if kind == "d" else 0o644}
    content = ""
    for word in words:
        owner, colon, group = word.partition(":")
        if word.isdigit():
            fields["mode"] = int(word, 8)
        elif colon and owner.isdigit() and group.isdigit():
            fields |= {"uid": int(owner), "gid": int(group)}
        else:
            content = word
    name = os.fsdecode(name.encode("latin-1"))
    if kind == "f":
        return tars.file(name, content.encode(), **fields)
    return tars.entry(name, KINDS[kind], linkname=os.fsdecode(content.encode("latin-1")), **fields)


def base_in(root: Path, case: Case) -> BaseImage:
    """Write the base of a case into a layout, and open it."""
    made: list[MadeLayer] = []
    for entries in case["layers"] * case["times"]:
        tar = tars.tar_of(*map(member, entries), format=tarfile.PAX_FORMAT)
        made.append(gzipped(tar) if case["packing"] == "gzip" else plain(tar, "base"))
    config = {"Volumes": {path: {} for path in case["volumes"]}, "User": case["user"]}
    write_layout(root, made, {**LINUX, "config": config})
    index = json.loads((root / "index.json").read_bytes())
    index["manifests"][0]["annotations"] = {"org.opencontainers.image.ref.name": "latest"}
    (root / "index.json").write_text(json.dumps(index))
    return LayoutBase().facts(parse_layout_target(f"oci:{root}"), Platform())


def image_on(base: BaseImage, artifacts: Artifacts, order: Any, placed: PlacedFiles) -> ImageSpec:
    return assemble_image(
        base,
        artifacts,
        SERVING,
        labels={},
        created="1970-01-01T00:00:00Z",
        order=order,
        placement=placed.placement,
    )


def artifacts_in(root: Path) -> Artifacts:
    """Write the model's files."""
    files = []
    for path, data in OURS.items():
        name = path.removeprefix("/opt/packager/model/")
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        role: Any = "weights" if name.endswith(".safetensors") else "config"
        files.append(ModelFile(path=name, role=role, content=whole(place)))
    return Artifacts(model=tuple(files))


def seen_below(root: Path) -> dict[bytes, tuple[Any, ...]]:
    """Return all that a container sees, but times: by path."""
    found: dict[bytes, tuple[Any, ...]] = {}
    top = os.fsencode(root)
    for place, directories, files in os.walk(top):
        for path in (place, *(place + b"/" + name for name in (*directories, *files))):
            one, status = Path(os.fsdecode(path)), os.lstat(path)
            content = b""
            if one.is_symlink():
                content = os.fsencode(one.readlink())
            elif one.is_file():
                content = one.read_bytes()
            owner = status.st_uid, status.st_gid
            found[path[len(top) :]] = (oct(status.st_mode), owner, status.st_rdev, content)
    return found


def placed_in(base: BaseImage, artifacts: Artifacts, order: Any) -> PlacedFiles:
    layers = LayerReader(BlobReader().chunks)
    files = ImageFiles(lambda wanted: layers.tree_of("base", base.layers, wanted))
    return files.ask(lambda tree: place_image(base, tree, artifacts, SERVING, order=order))


USUAL: Case = {"packing": "none", "times": 1, "volumes": [], "user": "", "order": "base-first"}
USUAL |= {"at": "/opt/packager", "model": "", "own_layers": False, "refused": "", "docker": False}
USUAL |= {"replaced": []}


@cases("bases", **USUAL)
def test_a_container_sees_every_file_of_the_base_and_ours(case: Case, tmp_path: Path) -> None:
    base = base_in(tmp_path / "base", case)
    artifacts = artifacts_in(tmp_path / "model")

    placed = placed_in(base, artifacts, case["order"])

    refused = {found.code for found in errors_in(placed.findings)}
    assert refused == set(filter(None, [case["refused"]]))
    if refused:
        return
    image = image_on(base, artifacts, case["order"], placed)
    usual = image_on(base, artifacts, case["order"], PlacedFiles(placement=AS_NAMED))
    assert (image.layers != usual.layers) == case["own_layers"], "shared with any other base"
    Bench(tmp_path).write_out(image, "1")
    before = seen_below(unpacked(f"{tmp_path / 'base'}:latest", tmp_path / "before"))
    root = unpacked(f"{tmp_path / 'out'}:1", tmp_path / "after")
    after = seen_below(root)
    serving = f"{case['at']}/serving/c.json".encode()
    kept = before.keys() - {serving, *(path.encode() for path in case["replaced"])}
    assert {path: after[path] for path in kept} == {path: before[path] for path in kept}
    model = case["model"] or f"{case['at']}/model"
    for path, data in OURS.items():
        real = path.replace("/opt/packager/model", model).encode()
        assert after[real] == ("0o100644", (0, 0), 0, data)
    assert after[serving] == ("0o100644", (0, 0), 0, b"{}")
    read = [*OURS, "/opt/packager/serving/c.json"]
    shown = subprocess.run(
        [sys.executable, "-c", READ, root, *read], capture_output=True, check=True
    )
    assert shown.stdout == b"".join((*OURS.values(), b"{}"))


@cases("bases", only=lambda row: "docker" in row, **USUAL)
def test_docker_shows_what_umoci_shows(case: Case, tmp_path: Path, engine: str) -> None:
    base = base_in(tmp_path / "base", case)
    artifacts = artifacts_in(tmp_path / "model")
    placed = placed_in(base, artifacts, case["order"])
    image = image_on(base, artifacts, case["order"], placed)
    name, bench = f"odd-base-{tmp_path.parent.name}:1", Bench(tmp_path)
    loaded = DockerSink(parse_target(f"docker:{name}", SINKS), reader=bench.reader)
    bench.write(image, layout_sink(f"{tmp_path / 'out'}:1"), loaded)

    client = docker.DockerClient(base_url=engine)
    container = client.containers.create(name, command=["/nothing"])
    exported = io.BytesIO(b"".join(container.export()))
    container.remove()
    client.images.remove(name)

    with tarfile.open(fileobj=exported) as archive:
        seen = {one.name: (one.mode & 0o7777, one.uid, one.gid) for one in archive}
    root = unpacked(f"{tmp_path / 'out'}:1", tmp_path / "after")
    status = {str(path.relative_to(root)): path.lstat() for path in root.rglob("*")}
    assert {name: seen[name] for name in status} == {
        name: (found.st_mode & 0o7777, found.st_uid, found.st_gid) for name, found in status.items()
    }
