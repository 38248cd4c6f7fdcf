"""From an image in a local registry to the first token: unpacked by Docker, against mounted.

    python benchmarks/first_token.py [--gb 4] [--rounds 3] [--variants plain,erofs,...]

Builds a Llama of random bf16 weights and two images of it for this machine: one with the weights
baked, one that mounts them.  Both are in a docker-registry of its own, with files compiled ahead
of time in them, and their base is in a Docker Engine of its own (root on Debian; see scripts/)
before anything is timed: what differs is how weights come to the engine.

    plain      docker pull of the image with its weights, then a container of it
    erofs      `packager node-cache` of the weights' layers out of the registry, `packager mount`,
               then a container of the other image with the mounted model bound into it
    …-cold     the same, told to leave compiled files alone: the engine compiles

Variants take turns within a round.  Answers are greedy and must be identical.  Beside it, the
weights' layers are unpacked by tar and written out (`syncfs`), and mounted again from the filled
cache: time and bytes written of both.  The page cache is warm for all: weights were just written.

Mounting wants root, a kernel with EROFS, and a packager with `mount` and `node-cache`.  The last
line of stdout is one JSON object with every figure.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bf16_model import write_servable_model
from cold_start import PORT, ask, wait_for
from judging import Judged, all_at_most, holds, verdict
from measuring import call, say
from servers import engine, registry

TARGETS = {"ratio_mount": 0.05, "ratio_total": 0.5, "written_share": 0.01}
TINY = Path(__file__).resolve().parent.parent / "examples" / "tiny-llama"
PACKAGER = (sys.executable, "-m", "packager")
MODEL, MOUNTED = "opt/packager/model", "/opt/ml/model"
VARIANTS = ("plain", "erofs", "plain-cold", "erofs-cold")
OWN = ("--layers", "own")  # the model's configuration is in a layer of its own
TOKENS, PROMPT = 16, "Once upon a time there was"


@dataclass(frozen=True)
class Start:
    """One variant, from the registry to the first token."""

    deliver_s: float  # until the container can be made
    mount_s: float  # of it; 0.0 where nothing is mounted
    ready_s: float  # from then to /ping
    total_s: float
    written_bytes: int  # by whoever delivered
    tokens: list[str]


@dataclass(frozen=True)
class Place:
    """What every variant works with."""

    work: Path
    host: str  # of the registry
    client: Any  # of the engine
    engine_pid: int
    mounter: Sequence[str]  # a packager that mounts

    @property
    def baked(self) -> str:
        return f"{self.host}/first-token/baked:1"

    @property
    def settings(self) -> str:
        return f"{self.host}/first-token/settings:1"

    @property
    def cache(self) -> Path:
        return self.work / "node-cache"

    @property
    def mounted(self) -> Path:
        return self.work / "mounted"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gb", type=float, default=4.0, help="of weights (decimal GB)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--variants", default=",".join(VARIANTS), help="of: %(default)s")
    parser.add_argument("--no-compile", action="store_true", help="images without compiled files")
    parser.add_argument("--mounter", default="", help="a packager that mounts; this one")
    parser.add_argument("--work", type=Path, help="where to work (default: a new directory)")
    asked = parser.parse_args()
    variants = asked.variants.split(",")
    if unknown := set(variants) - set(VARIANTS):
        parser.error(f"no such variant: {', '.join(sorted(unknown))}")
    mounter = (asked.mounter,) if asked.mounter else PACKAGER
    check_mounter(mounter)
    with tempfile.TemporaryDirectory(prefix="first-token-", dir=asked.work) as directory:
        work = Path(directory)
        with engine(work / "engine") as (docker_host, pid), registry(work) as (host, _):
            os.environ["DOCKER_HOST"] = docker_host
            place = Place(work, host, _client(docker_host), pid, mounter)
            place.mounted.mkdir()
            figures = measure(place, asked, variants)
    print(json.dumps(figures))
    return 0 if figures["targets_met"] else 1


def check_mounter(mounter: Sequence[str]) -> None:
    """End where nothing can be mounted, before anything is built."""
    if os.geteuid() != 0:
        raise SystemExit("first_token: only root may mount")
    for command in ("mount", "node-cache"):
        done = subprocess.run([*mounter, command, "--help"], capture_output=True, check=False)
        if done.returncode:
            raise SystemExit(f"first_token: this packager has no command {command!r}")


def measure(place: Place, asked: argparse.Namespace, variants: Sequence[str]) -> dict[str, Any]:
    """Build, start every variant in turns, and compare."""
    model, size = place.work / "model", int(asked.gb * 1e9)
    say(f"writing {asked.gb:g} GB of weights")
    write_servable_model(model, total_bytes=size, like=TINY)
    layout = place.work / "layout"
    more = () if asked.no_compile else ("--executor", "docker", "--compile", "vllm_cache")
    build(model, *more, "--output", place.baked, "--output", f"oci:{layout}")
    build(model, *more, "--weights", "mounted", "--output", place.settings)
    shutil.rmtree(model)
    call(["docker", "pull", "-q", place.settings])  # the base stays in the engine with it
    starts: dict[str, list[Start]] = {name: [] for name in variants}
    for number in range(asked.rounds):
        turn = number % len(variants)
        for name in (*variants[turn:], *variants[:turn]):
            start = run(place, name)
            starts[name].append(start)
            say(
                f"{name:<11} delivered {start.deliver_s:6.1f} s (mount {start.mount_s:.2f} s)  "
                f"ready {start.ready_s:6.1f} s  first token {start.total_s:6.1f} s"
            )
    beside = mount_beside_unpacking(place, layout)
    return describe(starts, beside, asked)


def build(model: Path, *more: str) -> None:
    """Build an image of the model for this machine."""
    say(f"building {more[-1]}")
    call(
        [
            *(*PACKAGER, "build", "--model", str(model), "--served-name", "first-token"),
            *("--instance", "local", "--base", "embedded:vllm-cpu", "--max-batch", "4"),
            *("--max-total-tokens", "1024", "--quiet", *more),
        ]
    )


def run(place: Place, name: str) -> Start:
    """Start one variant, with nothing of it on this machine."""
    kind, _, cold = name.partition("-")
    environment = {"PACKAGER_COMPILED": "off"} if cold else {}
    return plain(place, environment) if kind == "plain" else erofs(place, environment)


def plain(place: Place, environment: Mapping[str, str]) -> Start:
    """Let Docker pull and unpack the image with its weights."""
    subprocess.run(["docker", "rmi", place.baked], capture_output=True, check=False)
    written = written_by(place.engine_pid)
    began = time.monotonic()
    call(["docker", "pull", "-q", place.baked])
    delivered = time.monotonic()
    bytes_ = written_by(place.engine_pid) - written
    ready_s, tokens, ended = serve(place, place.baked, environment, {})
    subprocess.run(["docker", "rmi", place.baked], capture_output=True, check=False)
    return Start(
        deliver_s=round(delivered - began, 3),
        mount_s=0.0,
        ready_s=round(ready_s, 3),
        total_s=round(ended - began, 3),
        written_bytes=bytes_,
        tokens=tokens,
    )


def erofs(place: Place, environment: Mapping[str, str]) -> Start:
    """Fill a node cache with the weights, mount them, and bind them into a container."""
    shutil.rmtree(place.cache, ignore_errors=True)
    began = time.monotonic()
    _, filled = wrote([*place.mounter, "node-cache", place.baked, str(place.cache), *OWN])
    mounting = time.monotonic()
    with mounted(place) as written:
        delivered = time.monotonic()
        volume = {str(place.mounted / MODEL): {"bind": MOUNTED, "mode": "ro"}}
        ready_s, tokens, ended = serve(place, place.settings, environment, volume)
    return Start(
        deliver_s=round(delivered - began, 3),
        mount_s=round(delivered - mounting, 3),
        ready_s=round(ready_s, 3),
        total_s=round(ended - began, 3),
        written_bytes=filled + written,
        tokens=tokens,
    )


@contextmanager
def mounted(place: Place) -> Iterator[int]:
    """Mount the weights from the node cache; give the bytes that mounting wrote."""
    command = [*place.mounter, "mount", place.baked, str(place.mounted)]
    _, written = wrote([*command, "--node-cache", str(place.cache), *OWN])
    try:
        yield written
    finally:
        call([*place.mounter, "unmount", str(place.mounted)])


def mount_beside_unpacking(place: Place, layout: Path) -> dict[str, Any]:
    """Unpack the weights' layers by tar, and mount them from a filled cache."""
    unpacked = place.work / "unpacked"
    unpacked.mkdir()
    layers = weight_layers(layout)
    began = time.monotonic()
    unpacking = 0
    for blob in layers:
        _, written = wrote(["tar", "-xf", str(blob), "-C", str(unpacked)])
        unpacking += written
    call(["sync", "-f", str(unpacked)])
    unpack_s = time.monotonic() - began
    size = sum(path.stat().st_size for path in unpacked.rglob("*") if path.is_file())
    shutil.rmtree(unpacked)
    if not place.cache.is_dir():
        call([*place.mounter, "node-cache", place.baked, str(place.cache), *OWN])
    times = []
    for _ in range(3):
        began = time.monotonic()
        with mounted(place) as written:
            times.append(time.monotonic() - began)
    return {
        "unpack_s": round(unpack_s, 3),
        "unpack_written_bytes": unpacking,
        "mount_s": round(statistics.median(times), 3),
        "mount_written_bytes": written,
        "weights_bytes": size,
    }


def weight_layers(layout: Path) -> list[Path]:
    """Return the blobs of a layout's layers of weights, by what their history says."""
    blobs = layout / "blobs" / "sha256"

    def read(digest: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((blobs / digest.removeprefix("sha256:")).read_text())
        return found

    manifest = read(json.loads((layout / "index.json").read_text())["manifests"][0]["digest"])
    history = [
        one["created_by"]
        for one in read(manifest["config"]["digest"])["history"]
        if not one.get("empty_layer")
    ]
    return [
        blobs / layer["digest"].removeprefix("sha256:")
        for layer, said in zip(manifest["layers"], history, strict=True)
        if said.startswith("packager: weights")
    ]


def serve(
    place: Place, image: str, environment: Mapping[str, str], volumes: Mapping[str, Any]
) -> tuple[float, list[str], float]:
    """Run a container to its first token; give the seconds to /ping, its tokens, and the end."""
    bridged = any(network["Driver"] == "bridge" for network in place.client.api.networks())
    network = {"ports": {f"{PORT}/tcp": ("127.0.0.1", None)}} if bridged else {}
    began = time.monotonic()
    container = place.client.containers.create(
        image, environment=dict(environment), volumes=dict(volumes), shm_size="1g",
        **(network or {"network_mode": "host"}),
    )  # fmt: skip
    try:
        container.start()
        container.reload()
        port = container.ports[f"{PORT}/tcp"][0]["HostPort"] if bridged else PORT
        url = f"http://127.0.0.1:{port}"
        wait_for(f"{url}/ping", container, began)
        ready_s = time.monotonic() - began
        ask(url, "first-token", PROMPT, 1)
        ended = time.monotonic()
        return ready_s, ask(url, "first-token", PROMPT, TOKENS), ended
    finally:
        container.remove(force=True, v=True)


def describe(
    starts: Mapping[str, list[Start]], beside: Mapping[str, Any], asked: argparse.Namespace
) -> dict[str, Any]:
    """Medians, ratios, and whether the targets are met."""
    medians = {
        name: {
            field: statistics.median(getattr(one, field) for one in found)
            for field in ("deliver_s", "mount_s", "ready_s", "total_s", "written_bytes")
        }
        for name, found in starts.items()
    }
    ratios: dict[str, float] = {
        "ratio_mount": beside["mount_s"] / beside["unpack_s"],
        "written_share": beside["mount_written_bytes"] / beside["weights_bytes"],
    }
    for ending in ("", "-cold"):
        ours, theirs = medians.get(f"erofs{ending}"), medians.get(f"plain{ending}")
        if ours and theirs:
            name = f"ratio_total{ending.replace('-', '_')}"
            ratios[name] = ours["total_s"] / theirs["total_s"]
            # What the engine's own start leaves: no delivery makes a start shorter than that.
            ratios[f"{name}_floor"] = theirs["ready_s"] / theirs["total_s"]
            ratios[f"ratio_deliver{ending.replace('-', '_')}"] = (
                ours["deliver_s"] / theirs["deliver_s"]
            )
    same = {tuple(one.tokens) for found in starts.values() for one in found}
    rows: list[Judged] = [*all_at_most(ratios, TARGETS), holds("identical_answers", len(same) == 1)]
    return {
        "benchmark": "first_token",
        "gb": asked.gb,
        **{name: round(value, 4) for name, value in ratios.items()},
        "beside": dict(beside),
        "medians": medians,
        "rounds": {
            name: [{**asdict(one), "tokens": None} for one in found]
            for name, found in starts.items()
        },
        "load_at_end": os.getloadavg()[0],
        "targets": TARGETS,
        **verdict(rows),
    }


def wrote(command: Sequence[str]) -> tuple[str, int]:
    """Run a command; give its stdout and the bytes that it and its children wrote to disks."""
    import resource

    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_oublock
    out = call(command)
    return out, 512 * (resource.getrusage(resource.RUSAGE_CHILDREN).ru_oublock - before)


def written_by(pid: int) -> int:
    """Return the bytes that a process and its ended children made dirty."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))


def _client(docker_host: str) -> Any:
    import docker

    return docker.DockerClient(base_url=docker_host, timeout=600)


if __name__ == "__main__":
    sys.exit(main())
