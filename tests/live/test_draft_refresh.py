"""Turns of a head on vLLM: traffic makes one that serves, noise makes none, a bad one goes back."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.live.building import build
from tests.support.commandline import TINY, Packager, packager_in
from tests.support.free_ports import free_port

pytestmark = [pytest.mark.live, pytest.mark.extended, pytest.mark.timeout(5400)]

FIRST = "packager-test-refresh:1"
SECRET = "sEcReT-of-a-client"
FILE = """
name = "refreshed"
model = "{model}"
traffic = "{traffic}"
image = "packager-test-refresh"
train = [{train}, "--max-steps", "{steps}"]
build = ["--max-batch", "4"]
deploy = [
  "--port", "{port}", "--env", "OMP_NUM_THREADS=1", "--capture", "rows", "--capture-share", "1",
]

[collect]
conversations = 60

[measure]
prompts = 12
rounds = 2
max_tokens = 24
together = true
env = {{OMP_NUM_THREADS = "1"}}

[gate]  # two rounds on busy cores decide nothing about speeds
accepted_length = {least}
worst_set = {least}
throughput = -1.0
first_token = 1e300
against_plain = -1.0

[watch]
seconds = 5
requests = 10
longest_s = 600
slower = 100.0
"""
TRAIN = (
    *("--learning-rate", "3e-3", "--batch-tokens", "256", "--max-tokens", "96"),
    *("--epochs", "6", "--answers", "data"),
)


def ask(address: str, number: int) -> str:
    """Return why a request of the domain failed; "" where it was answered."""
    parts = urlsplit(address)
    client = HTTPConnection(str(parts.hostname), parts.port or 80, timeout=300)
    text = f"Write the weather report number {number} for Oslo on Friday."
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 24, "temperature": 0}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {SECRET}"}
    try:
        client.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        answer = client.getresponse()
        said = answer.read()
    except OSError as error:
        return repr(error)
    return "" if answer.status == 200 else f"{answer.status} {said[:100]!r}"


@contextmanager
def load(address: str) -> Iterator[list[str]]:
    """Ask all the time; yield the reasons of failures."""
    failed: list[str] = []
    end = threading.Event()

    def asking() -> None:
        number = 1000
        while not end.is_set():
            failed.extend(filter(None, [ask(address, number := number + 1)]))

    thread = threading.Thread(target=asking)
    thread.start()
    try:
        yield failed
    finally:
        end.set()
        thread.join()


@pytest.fixture
def place(
    docker_host: str, serving_base: str, training: Path, tmp_path: Path
) -> Iterator[tuple[Packager, Any, Path]]:
    import docker

    client = docker.DockerClient(base_url=docker_host)
    packager = packager_in(tmp_path, timeout_s=3000)
    own = {"DOCKER_HOST": docker_host}
    build(packager, f"docker:{FIRST}", "--max-batch", "4", base=serving_base, env=own)
    yield packager, client, tmp_path
    packager("deploy", "compose", "delete", "refreshed", env=own)
    for image in client.images.list("packager-test-refresh"):
        client.images.remove(image.id, force=True)


def write_noise(folder: Path, seed: int) -> None:
    """Write traffic that no head can learn: its answers are letters by chance."""
    draw = random.Random(seed)
    texts = ["".join(draw.choices("abcdefghij klmnop", k=60)) for _ in range(160)]
    rows = [
        {"messages": [{"role": "user", "content": one}, {"role": "assistant", "content": other}]}
        for one, other in zip(texts[::2], texts[1::2], strict=True)
    ]
    folder.mkdir(exist_ok=True)
    (folder / f"{seed}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def zero(head: Path) -> None:
    """Set every weight of a head to zero."""
    for path in head.glob("*.safetensors"):
        data = bytearray(path.read_bytes())
        begin = 8 + int.from_bytes(data[:8], "little")
        for name, tensor in json.loads(data[8:begin]).items():
            if name != "__metadata__" and tensor["dtype"] in ("F32", "F16", "BF16"):
                first, last = (begin + at for at in tensor["data_offsets"])
                data[first:last] = bytes(last - first)
        path.write_bytes(data)


def test_only_a_better_head_serves_and_stays(
    place: tuple[Packager, Any, Path], docker_host: str
) -> None:
    packager, client, folder = place
    own = {"DOCKER_HOST": docker_host}
    port = free_port()
    words = ", ".join(json.dumps(word) for word in TRAIN)
    for name, traffic, steps, least in (
        ("good", "rows", 90, 0),
        ("noise", "noise", 90, 0),
        ("bad", "noise", 4, -1),
    ):
        own_part = {"traffic": traffic, "steps": steps, "least": least}
        text = FILE.format(model=TINY, port=port, train=words, **own_part)
        (folder / f"{name}.toml").write_text(text)

    def run(*words: str, status: int = 0) -> Any:
        done = packager(*words, "--format", "json", env=own)
        assert done.status == status, done.err
        return json.loads(done.out)

    def served() -> str:
        return str(run("deploy", "compose", "status", "refreshed", "--wait")["image"])

    options = ("--port", str(port), "--env", "OMP_NUM_THREADS=1", "--wait")
    capture = ("--capture", "rows", "--capture-share", "1")
    common = ("deploy", "compose", "apply", f"docker:{FIRST}", "--name", "refreshed")
    address = run(*common, *options, *capture)["address"]
    assert [failure for number in range(80) if (failure := ask(address, number))] == []
    (front,) = client.containers.list(filters={"label": "com.docker.compose.service=front"})
    front.restart(timeout=30)  # a file is complete when its writer ends
    files = list((folder / "rows").rglob("*.jsonl"))
    assert SECRET not in "".join(file.read_text() for file in files)
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert served() == FIRST  # the front takes a moment after its restart

    with load(address) as failed:
        turn = run("draft", "refresh", "good.toml")
        assert turn["outcome"] == "served"
        length = turn["stages"]["gate"]["checks"][0]
        assert (length["name"], length["state"]) == ("accepted length", "yes")
        assert length["low"] > 0.1
        assert served() == "packager-test-refresh:head-1"

        write_noise(folder / "noise", 1)
        turn = run("draft", "refresh", "noise.toml", status=7)
        assert turn["outcome"] == "kept"
        assert served() == "packager-test-refresh:head-1"

        write_noise(folder / "noise", 2)
        turn = run("draft", "refresh", "bad.toml", "--until", "train")
        zero(Path(turn["stages"]["train"]["head"]))
        turn = run("draft", "refresh", "bad.toml", status=4)
        assert turn["outcome"] == "back"
        assert "tokens are accepted" in turn["stages"]["watch"]["reason"]
        assert served() == "packager-test-refresh:head-1"
    assert failed == []
