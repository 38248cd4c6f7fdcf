"""Models that run here: the whole line into a real Docker Engine, with an engine in a blink.

The engine of most images is `tiny_engine.py`; vLLM is in one test.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from tests.live.servers import ask, small_model_words
from tests.live.tiny_images import TINY_ENGINE
from tests.live.waiting import wait_until
from tests.support.commandline import TINY, Packager

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500)]

RUNS = "dev.packager.run"


@pytest.fixture
def containers(engine: str) -> Iterator[Any]:
    """The containers of runs that there are; whatever a test leaves is removed."""
    import docker

    client = docker.DockerClient(base_url=engine)

    def there() -> list[Any]:
        return list(client.containers.list(all=True, filters={"label": RUNS}))

    assert there() == []
    yield there
    for container in there():
        container.remove(force=True)


@contextmanager
def running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Start `packager run` in the foreground; give its process and what it printed."""
    heard = ("env", "--default-signal=HUP")  # under nohup a hangup would be ignored, as it should
    with subprocess.Popen(
        [*heard, sys.executable, "-m", "packager", "run", *arguments, "--format", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            lines = [process.stdout.readline()]
            while lines[-1] not in ("}\n", ""):
                lines.append(process.stdout.readline())
            assert lines[-1], process.stderr.read()
            yield process, json.loads("".join(lines))
        finally:
            process.kill()


def paste(line: str) -> Any:
    """Run a printed line in a shell; return the document that the server answers."""
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def ask_for(url: str, tokens: int) -> dict[str, Any]:
    model = ask(url, "/v1/models")["data"][0]["id"]
    body = {"model": model, "messages": [], "max_tokens": tokens}
    return dict(ask(url, "/v1/chat/completions", body))


def test_a_model_is_built_and_answers_and_is_listed_until_it_is_stopped(
    packager: Packager, image: str, containers: Any
) -> None:
    words = ("--base", f"docker:{TINY_ENGINE}", "--detach", "--name", "it")

    done = packager("run", str(TINY), *words, status=0)

    first, _, line, _, *program = done.out.splitlines()
    address = first.rpartition(" ")[2]
    assert paste(line)["choices"] == [{"message": {"content": "from a chat"}}]
    assert f'client = OpenAI(base_url="{address}/v1", api_key="none")' in program
    [container] = containers()
    assert container.attrs["Config"]["StopTimeout"] == 30
    [[bound]] = container.ports.values()
    assert bound["HostIp"] == "127.0.0.1"
    [listed] = json.loads(packager("ps", "--format", "json").out)
    assert (listed["name"], listed["state"], listed["url"]) == ("it", "running", address)
    assert packager("logs", "it", "--tail", "1").out.endswith('"GET /ping HTTP/1.1" 200 -\n')
    logged = packager("logs", "it", "--format", "json").out.splitlines()
    assert [json.loads(one)["text"] for one in logged[:2]] == ["loading shard 3 of 9", "ready"]

    again = packager("run", str(TINY), *words)
    taken = packager("run", str(TINY), "--name", "other", "--port", address.rpartition(":")[2])

    assert (again.status, taken.status) == (2, 2)
    assert f"a run named 'it' is there already at {address}" in again.err
    assert "is taken by the run 'it'" in taken.err
    assert packager("stop", "it").out == "it\n"
    assert containers() == []
    assert packager("logs", "it").status == 66


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_lets_running_requests_end_and_removes_the_container(
    number: signal.Signals, image: str, containers: Any
) -> None:
    with running(image) as (process, told), ThreadPoolExecutor() as threads:
        slow = threads.submit(ask_for, told["url"], 7)
        [container] = containers()
        wait_until(lambda: b"a slow answer has begun" in container.logs())
        process.send_signal(number)

        assert slow.result(300)["choices"][0]["message"]["content"] == "from a chat"
        assert process.wait(300) == 0
        assert containers() == []


def test_a_run_that_was_killed_is_still_listed_and_stopped(
    packager: Packager, image: str, containers: Any
) -> None:
    with running(image, "--name", "left") as (process, _):
        process.kill()
        process.wait()

    [listed] = json.loads(packager("ps", "--format", "json").out)
    assert (listed["name"], listed["state"]) == ("left", "running")
    assert packager("stop", "--all", "--timeout", "1").out == "left\n"
    assert containers() == []


def test_an_engine_that_dies_ends_the_run_with_its_log(image: str, containers: Any) -> None:
    with running(image) as (process, told):
        with pytest.raises(OSError):
            ask_for(told["url"], 13)
        assert process.wait(300) == 4
        assert process.stderr is not None
        error = json.loads(process.stderr.read())

    assert error["message"] == "the server ended with status 3"
    assert "ERROR the worker died" in error["log"]
    assert containers() == []


def test_an_interrupt_before_it_answers_leaves_nothing(image: str, containers: Any) -> None:
    command = [sys.executable, "-m", "packager", "run", image, "--env", "TINY_FAULT=never-ready"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_until(lambda: any(container.status == "running" for container in containers()))
        process.send_signal(signal.SIGINT)
        try:
            said, _ = process.communicate(timeout=300)
        except subprocess.TimeoutExpired as late:
            process.kill()  # else it is waited for, for ever
            pytest.fail(f"it goes on: {(late.stderr or b'').decode(errors='replace')[-2000:]}")

    assert (process.returncode, said) == (130, b"")
    assert containers() == []


def test_vllm_answers_the_pasted_line_and_openai_s_client(
    packager: Packager, engine: str, serving_base: str, containers: Any
) -> None:
    with running(str(TINY), *small_model_words()) as (process, told):
        answer = paste(told["curl"])
        client = subprocess.run(
            [sys.executable, "-c", told["python"]], capture_output=True, text=True, timeout=300
        )
        process.send_signal(signal.SIGINT)

        assert answer["model"] == told["model"]
        assert answer["choices"][0]["message"]["content"].strip()
        assert client.returncode == 0, client.stderr
        assert client.stdout.strip()
        assert process.wait(120) == 0
        assert containers() == []
