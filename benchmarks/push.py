"""Build and push weights: packager against `docker build` + `docker push`, in one run.

Both put the same shards on the same base into the same fresh registry on
loopback.  docker gets its best case: the classic builder, one COPY a shard.
The floor is what this machine allows at all: ready-made bytes sent by as many
concurrent PATCH requests as packager uses, hashed once on the way.

Starts its own registry and engine (root on Debian; see scripts/) and stops
them.  The last line of stdout is one JSON object with every figure.

    python benchmarks/push.py --gb 4
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import io
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
CHUNK = 1024 * 1024
TARGETS = {"ratio_docker": 0.12, "ratio_second": 0.03}


@dataclass(frozen=True)
class Run:
    """One timed command."""

    wall_s: float
    cpu_s: float  # of the command and its children
    server_cpu_s: float  # of the registry and, for docker, the engine
    peak_rss_bytes: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--gb", type=float, default=4.0, help="size of the weights (decimal GB)")
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3, help="rounds of packager and the floor")
    parser.add_argument("--docker-rounds", type=int, default=1)
    parser.add_argument("--work", type=Path, help="where to work (default: a new directory)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="packager-bench-", dir=arguments.work) as work:
        figures = measure(Path(work), arguments)
    print(json.dumps(figures))
    return 0


def measure(work: Path, arguments: argparse.Namespace) -> dict[str, object]:
    """Run every contender and put the figures together."""
    say(f"writing {arguments.gb} GB of bf16-like weights in {arguments.shards} shards")
    model = work / "model"
    # In a process of its own: a child's peak memory counts from its parent's size.
    writer = [sys.executable, str(Path(__file__).with_name("bf16_model.py")), str(model)]
    call([*writer, str(int(arguments.gb * 1e9)), str(arguments.shards)])
    shards = sorted(model.glob("*.safetensors"))
    with engine(work / "engine") as (docker_host, engine_pid):
        os.environ["DOCKER_HOST"] = docker_host
        make_base()
        firsts, seconds, floors = [], [], []
        for round_number in range(arguments.rounds):
            with registry(work) as (host, pid):
                push_base(host)
                firsts.append(packager(work / f"state-{round_number}", model, host, pid))
                seconds.append(packager(work / f"state-{round_number}", model, host, pid))
                say(f"round {round_number + 1}: {firsts[-1][0].wall_s:.1f} s")
            with registry(work) as (host, pid):
                floors.append(timed(lambda host=host: floor(host, shards), [pid]))
        dockers = []
        for _ in range(arguments.docker_rounds):
            with registry(work) as (host, pid):
                push_base(host)
                dockers.append(docker(model, shards, host, [pid, engine_pid]))
                say(f"docker: {dockers[-1].wall_s:.1f} s")
    return report(arguments, [run for run, _ in firsts], [run for run, _ in seconds], floors,
                  dockers, firsts[0][1], seconds[0][1])  # fmt: skip


def report(
    arguments: argparse.Namespace,
    firsts: list[Run],
    seconds: list[Run],
    floors: list[Run],
    dockers: list[Run],
    first_record: dict[str, object],
    second_record: dict[str, object],
) -> dict[str, object]:
    """Medians, ratios, and whether the targets are met."""
    first, second = median(firsts), median(seconds)
    bare, docker_wall = median(floors), median(dockers)
    ratios = {
        "ratio_docker": round(first / docker_wall, 4),
        "ratio_floor": round(first / bare, 3),
        "ratio_second": round(second / first, 4),
    }
    rows = [
        ("packager build", first, firsts[0].cpu_s, firsts[0].server_cpu_s),
        ("  again, unchanged", second, seconds[0].cpu_s, seconds[0].server_cpu_s),
        ("docker build + push", docker_wall, dockers[0].cpu_s, dockers[0].server_cpu_s),
        ("bare PATCH (floor)", bare, floors[0].cpu_s, floors[0].server_cpu_s),
    ]
    print(f"{'':22}{'wall s':>9}{'client CPU s':>14}{'servers CPU s':>15}")
    for name, wall, cpu, servers in rows:
        print(f"{name:22}{wall:9.2f}{cpu:14.2f}{servers:15.2f}")
    return {
        "benchmark": "push",
        "gb": arguments.gb,
        "shards": arguments.shards,
        "rounds": arguments.rounds,
        "packager_wall_s": [round(run.wall_s, 2) for run in firsts],
        "packager_cpu_s_per_gb": round(
            statistics.median(r.cpu_s for r in firsts) / arguments.gb, 3
        ),
        "packager_peak_rss_mb": round(max(run.peak_rss_bytes for run in firsts) / 1e6, 1),
        "packager_transfer": first_record,
        "second_wall_s": [round(run.wall_s, 2) for run in seconds],
        "second_transfer": second_record,
        "docker_wall_s": [round(run.wall_s, 2) for run in dockers],
        "docker_servers_cpu_s": round(dockers[0].server_cpu_s, 1),
        "floor_wall_s": [round(run.wall_s, 2) for run in floors],
        **ratios,
        "targets": TARGETS,
        "targets_met": all(ratios[name] <= limit for name, limit in TARGETS.items()),
    }


def packager(state: Path, model: Path, host: str, registry_pid: int) -> tuple[Run, dict]:
    """Build and push with a state directory of its own; give the run and what was moved."""
    environment = {**os.environ, "XDG_STATE_HOME": str(state)}
    command = [sys.executable, "-m", "packager", "build", "--model", str(model)]
    command += ["--instance", "ml.p4d.24xlarge", "--base", f"{host}/base:1", "--quiet"]
    command += ["--output", f"{host}/model:1", "--format", "json"]
    output: list[str] = []
    run = timed(lambda: output.append(call(command, environment)), [registry_pid])
    return run, json.loads(output[0])["transfer"]


def docker(model: Path, shards: list[Path], host: str, pids: list[int]) -> Run:
    """`docker build` then `docker push`; the context is the model directory."""
    lines = [f"FROM {host}/base:1"]
    lines += [f"COPY {shard.name} /opt/packager/model/{shard.name}" for shard in shards]
    lines += ["COPY *.json /opt/packager/model/"]
    dockerfile = model.parent / "Dockerfile"
    dockerfile.write_text("\n".join(lines) + "\n")
    environment = {**os.environ, "DOCKER_BUILDKIT": "0"}
    image = f"{host}/docker-model:1"

    def build_and_push() -> None:
        build = ["docker", "build", "-q", "--no-cache", "-t", image, "-f", str(dockerfile)]
        call([*build, str(model)], environment)
        call(["docker", "push", "-q", image], environment)

    run = timed(build_and_push, pids)
    call(["docker", "image", "rm", "-f", image], environment)
    return run


def floor(host: str, shards: list[Path]) -> None:
    """Send each shard as one blob: read, hash, PATCH, PUT, four at a time."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda shard: _bare_upload(host, shard), shards))


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
    connection.request("PUT", f"{location}&digest=sha256:{hashed.hexdigest()}", body=b"")
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 201, answer.status


def _location(connection: http.client.HTTPConnection) -> str:
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 202, answer.status
    location = answer.getheader("Location") or ""
    return location[location.index("/v2/") :]


def make_base() -> None:
    """Import a one-layer image of a few bytes into the engine."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        member = tarfile.TarInfo("etc/base")
        member.size = 4
        tar.addfile(member, io.BytesIO(b"base"))
    subprocess.run(["docker", "import", "-", "bench-base:1"], input=archive.getvalue(),
                   check=True, capture_output=True)  # fmt: skip


def push_base(host: str) -> None:
    call(["docker", "tag", "bench-base:1", f"{host}/base:1"])
    call(["docker", "push", "-q", f"{host}/base:1"])


@contextmanager
def registry(work: Path) -> Iterator[tuple[str, int]]:
    """A fresh docker-registry; gives HOST:PORT and its process."""
    root = work / "registry"
    host = call([str(SCRIPTS / "registry"), "start", "--root", str(root)]).split()[-1]
    try:
        yield host, status_pid("registry", root)
    finally:
        call([str(SCRIPTS / "registry"), "stop", "--root", str(root)])
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def engine(root: Path) -> Iterator[tuple[str, int]]:
    """A private Docker Engine; gives DOCKER_HOST and its process."""
    call([str(SCRIPTS / "docker-engine"), "start", "--root", str(root)])
    try:
        exported = call([str(SCRIPTS / "docker-engine"), "env", "--root", str(root)])
        host = exported.split("DOCKER_HOST=")[1].split()[0].strip("'\";")
        yield host, status_pid("docker-engine", root)
    finally:
        call([str(SCRIPTS / "docker-engine"), "stop", "--root", str(root)])


def status_pid(script: str, root: Path) -> int:
    status = call([str(SCRIPTS / script), "status", "--root", str(root), "--format", "json"])
    return int(json.loads(status)["pid"])


def timed(work: Callable[[], object], servers: list[int]) -> Run:
    """Time `work`, children included. The page cache is warm: the weights were just written."""
    os.sync()
    _CHILDREN.clear()
    own, servers_before = time.process_time(), sum(map(_cpu_of, servers))
    started = time.perf_counter()
    work()
    wall = time.perf_counter() - started
    return Run(
        wall_s=wall,
        cpu_s=time.process_time() - own + sum(u.ru_utime + u.ru_stime for u in _CHILDREN),
        server_cpu_s=sum(map(_cpu_of, servers)) - servers_before,
        peak_rss_bytes=max((usage.ru_maxrss * 1024 for usage in _CHILDREN), default=0),
    )


_CHILDREN: list[resource.struct_rusage] = []  # of the run being timed


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def median(runs: list[Run]) -> float:
    return statistics.median(run.wall_s for run in runs)


def call(command: list[str], environment: dict[str, str] | None = None) -> str:
    """Run a command to its end, note what it used, give its stdout."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        _CHILDREN.append(usage)
        for stream in (out, err):
            stream.seek(0)
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{err.read().decode()[-2000:]}")
        return out.read().decode()


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
