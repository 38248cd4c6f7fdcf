"""What others do with the same weights, each in its best case. Times include the push."""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from measuring import Run, call, timed

CHUNK = 1024 * 1024
INSIDE = "/opt/packager/model"


def docker(model: Path, host: str, servers: list[int]) -> Run:
    """`docker build` (classic builder, one COPY a shard), then `docker push`."""
    image, environment = f"{host}/docker-model:1", {**os.environ, "DOCKER_BUILDKIT": "0"}
    build = ["docker", "build", "-q", "--no-cache", "-t", image, "-f", _dockerfile(model, host)]

    def work() -> None:
        call([*build, str(model)], environment)
        call(["docker", "push", "-q", image], environment)

    run = timed(work, servers)
    call(["docker", "image", "rm", "-f", image], environment)
    return run


def buildah(model: Path, host: str, servers: list[int]) -> Run:
    """`buildah bud`, one COPY a shard, on overlay storage of its own, then `buildah push`."""
    place = model.parent / "buildah"
    tool = ["buildah", "--root", f"{place}/root", "--runroot", f"{place}/run"]
    tool += ["--storage-driver", "overlay"]
    image = f"{host}/buildah-model:1"
    build = [*tool, "bud", "--layers", "--tls-verify=false", "--isolation", "chroot", "-q"]

    def work() -> None:
        call([*build, "-t", image, "-f", _dockerfile(model, host), str(model)])
        call([*tool, "push", "-q", "--tls-verify=false", image])

    run = timed(work, servers)
    call([*tool, "rmi", "--all", "--force"])
    shutil.rmtree(place, ignore_errors=True)
    return run


def olot(model: Path, host: str, servers: list[int]) -> Run:
    """The base into a layout, `olot` adds a layer a file, `skopeo copy` pushes as it is."""
    layout = model.parent / "olot-layout"
    files = [str(path) for path in sorted(model.iterdir())]
    pull = ["skopeo", "copy", "-q", "--src-tls-verify=false", f"docker://{host}/base:1"]
    push = ["skopeo", "copy", "-q", "--preserve-digests", "--dest-tls-verify=false"]

    def work() -> None:
        call([*pull, f"oci:{layout}:latest"])
        call(["olot", str(layout), *files])
        call([*push, f"oci:{layout}:latest", f"docker://{host}/olot-model:1"])

    run = timed(work, servers)
    shutil.rmtree(layout)
    return run


def floor(model: Path, host: str, servers: list[int]) -> Run:
    """What this machine allows: shards read, hashed and sent by bare PATCHes, four at a time."""
    shards = sorted(model.glob("*.safetensors"))

    def work() -> None:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda shard: _bare_upload(host, shard), shards))

    return timed(work, servers)


def _bare_upload(host: str, shard: Path) -> None:
    connection = http.client.HTTPConnection(host)
    connection.request("POST", "/v2/floor/blobs/uploads/")
    location = _location(connection)
    hashed = hashlib.sha256()
    connection.putrequest("PATCH", location)
    connection.putheader("Content-Length", str(shard.stat().st_size))
    connection.putheader("Content-Type", "application/octet-stream")
    connection.endheaders()
    buffer = memoryview(bytearray(CHUNK))
    with shard.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            hashed.update(buffer[:count])
            connection.send(buffer[:count])
    location = _location(connection)
    address = f"{location}{'&' if '?' in location else '?'}digest=sha256:{hashed.hexdigest()}"
    connection.request("PUT", address, body=b"")
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 201, answer.status


def _location(connection: http.client.HTTPConnection) -> str:
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 202, answer.status
    location = answer.getheader("Location") or ""
    return location[location.index("/v2/") :]


def _dockerfile(model: Path, host: str) -> str:
    shards = sorted(path.name for path in model.glob("*.safetensors"))
    lines = [f"FROM {host}/base:1"]
    lines += [f"COPY {shard} {INSIDE}/{shard}" for shard in shards]
    lines += [f"COPY *.json {INSIDE}/"]
    path = model.parent / "Dockerfile"
    path.write_text("\n".join(lines) + "\n")
    return str(path)
