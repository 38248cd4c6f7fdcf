"""Servers in containers of images that packager built, asked from outside."""

from __future__ import annotations

import json
import struct
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Barrier
from typing import Any

from packager.core.serving import MOUNTED_MODEL_DIR
from tests.support.free_ports import free_port

READY_S = 600.0

# Threads of a small model only wait for each other.  The process that schedules computes, too:
# a third one of vLLM's would load all of its modules once more.
SMALL_MODEL = {"OMP_NUM_THREADS": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}


@contextmanager
def served(
    docker_host: str,
    image: str,
    health: Mapping[str, int] | None = None,
    model: Path | None = None,
    **environment: str,
) -> Iterator[tuple[Any, str]]:
    """Run the image until /ping answers; give the container and its address.

    `health` has what is asked otherwise than the image asks of its health; `model` is mounted
    where images without weights look for theirs.
    Where the engine has no bridge it is on the host's network, at a port of its own.
    """
    import docker

    client = docker.DockerClient(base_url=docker_host)
    bridged = any(network["Driver"] == "bridge" for network in client.api.networks())
    port = 8080 if bridged else free_port()
    place: dict[str, Any] = (
        {"ports": {"8080/tcp": ("127.0.0.1", None)}}
        if bridged
        else {"network_mode": "host", "command": ["--port", str(port)]}
    )
    if health:
        place["healthcheck"] = health
    if model is not None:
        place["volumes"] = {str(model): {"bind": MOUNTED_MODEL_DIR, "mode": "ro"}}
    container = client.containers.create(image, environment=environment, shm_size="1g", **place)
    try:
        container.start()
        container.reload()
        if bridged:
            port = container.ports["8080/tcp"][0]["HostPort"]
        url = f"http://127.0.0.1:{port}"
        began = time.monotonic()
        while True:
            with suppress(OSError), urllib.request.urlopen(f"{url}/ping", timeout=5) as answer:
                if answer.status == 200:
                    break
            container.reload()
            log = container.logs(tail=40).decode()
            assert container.status == "running", log
            assert time.monotonic() - began < READY_S, log
            time.sleep(0.3)
        yield container, url
    finally:
        container.remove(force=True, v=True)


def run_inside(
    container: Any, words: Sequence[str], environment: Mapping[str, str] | None = None
) -> tuple[int, bytes, bytes]:
    """Run a command in a container; return its status, what it printed and what it complained of.

    docker-py's own `exec_run` reads from under the buffer that the answer's headers came through:
    output that is sent together with them is lost.  Asked without an upgrade of the connection the
    engine sends it as a body.
    """
    api = container.client.api
    made = api.exec_create(container.id, list(words), environment=dict(environment or {}))["Id"]
    answer = api.post(
        f"{api.base_url}/v{api.api_version}/exec/{made}/start",
        json={"Detach": False, "Tty": False},
        timeout=None,
    )
    answer.raise_for_status()
    printed = {1: b"", 2: b""}
    left = answer.content
    while left:  # Docker's frames: the stream's number, three zeros, four bytes of size
        stream, size = struct.unpack(">BxxxL", left[:8])
        printed[stream] += left[8 : 8 + size]
        left = left[8 + size :]
    return api.exec_inspect(made)["ExitCode"], printed[1], printed[2]


def small_model_words() -> tuple[str, ...]:
    """Return the same as options of commands that start containers."""
    return tuple(
        word for name, value in SMALL_MODEL.items() for word in ("--env", f"{name}={value}")
    )


def ask(url: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """GET, or POST a document; give the answer's."""
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)


def greedy_tokens(url: str, prompts: Sequence[str]) -> list[list[str]]:
    """Return the tokens of tiny-llama's likeliest answers."""
    asked = {"model": "tiny-llama", "max_tokens": 24, "temperature": 0, "logprobs": 1}
    answers = (ask(url, "/v1/completions", {**asked, "prompt": prompt}) for prompt in prompts)
    return [answer["choices"][0]["logprobs"]["tokens"] for answer in answers]


def read_stream(url: str, asked: Mapping[str, Any], begun: Barrier) -> tuple[str, str]:
    """Stream a completion; return why it ended and the last event. `begun` waits at the first."""
    data = json.dumps({**asked, "stream": True}).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/completions", data, headers)
    reason, last = "", ""
    with urllib.request.urlopen(request, timeout=120) as answer:
        for line in answer:
            if not line.startswith(b"data: "):
                continue
            if not last:
                begun.wait(timeout=120)
            last = line.removeprefix(b"data: ").decode().strip()
            if last.startswith("{"):  # an aborted stream ends with an error in place of choices
                for choice in json.loads(last).get("choices", ()):
                    reason = choice["finish_reason"] or reason
    return reason, last
