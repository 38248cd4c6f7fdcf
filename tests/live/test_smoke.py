"""The whole line: a real vLLM answers from a container that packager built."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
import urllib3

from tests.live.building import build, told
from tests.live.processors import PROCESSORS, caps
from tests.live.servers import ask, read_stream, run_inside, served, small_model_words
from tests.live.waiting import wait_until
from tests.support.commandline import Packager

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500)]

# The process that computes is a child of the server, and names itself.
KILL_THE_ENGINE = """
for place in /proc/[0-9]*; do
    if grep -q "^VLLM::EngineCore" "$place/cmdline"; then kill -SEGV "${place#/proc/}"; exit; fi
done
exit 1
"""


@pytest.mark.parametrize(
    "processor", [pytest.param("native", marks=pytest.mark.capability("serve")), "avx2"]
)
def test_a_built_image_answers(
    packager: Packager, engine: str, plain_image: str, processor: str
) -> None:
    pretended = PROCESSORS[processor] or caps()
    env = (word for name in pretended for word in ("--env", f"{name}={pretended[name]}"))
    words = ("--max-tokens", "24", *small_model_words(), *env)
    result = told(packager, "smoke", plain_image, *words)

    chat, invocations = result["answers"]
    assert result["model"] == "tiny-llama"
    assert 1 <= chat["tokens"] <= 24
    assert 1 <= invocations["tokens"] <= 24
    assert chat["text"].strip()


WRONG_BODIES = ["[]", '"x"', "null", "", "{", "[" * 100_000]


def test_a_started_image_is_healthy_quiet_says_what_is_wrong_with_a_body_and_when_its_engine_died(
    engine: str, plain_image: str
) -> None:
    """vLLM shuts down in good order, with status 0, when the process that computes died."""
    often = {"interval": 1_000_000_000}  # nanoseconds, in place of the image's 15 s
    with served(engine, plain_image, often, OMP_NUM_THREADS="1") as (container, url):
        wait_until(lambda: health_of(container) == "healthy", 600)
        answers = [
            urllib3.request("POST", f"{url}/invocations", body=body.encode(), retries=False)
            for body in WRONG_BODIES
        ]
        log = container.logs().decode()
        infos = run_inside(container, ["find", "/tmp/.cache/vllm/modelinfos", "-name", "*Llama*"])
        asked = run_inside(container, ["find", "/tmp/.cache/vllm/modelinfos", "-type", "f"])
        killed = run_inside(container, ["sh", "-c", KILL_THE_ENGINE])
        assert killed[0] == 0, killed
        died = container.wait()["StatusCode"]
        end = container.logs(tail=40).decode()

    assert [answer.status for answer in answers] == [400] * len(WRONG_BODIES)
    assert {answer.json()["error"]["type"] for answer in answers} == {"BadRequestError"}
    assert "DeprecationWarning" not in log
    assert b"LlamaForCausalLM.json" in infos[1]
    assert asked == (0, b"", b"")  # vLLM believed what the base knows
    assert "GET /health" not in log
    assert died == 70, end
    assert "its engine died" in end


def health_of(container: Any) -> str:
    container.reload()
    return str(container.attrs["State"]["Health"]["Status"])


def test_docker_stop_lets_running_streams_end(engine: str, plain_image: str) -> None:
    """Without `--shutdown-timeout` each of them is lost, and the container hangs until SIGKILL."""
    few = {"model": "tiny-llama", "prompt": "def f(", "max_tokens": 1}
    asked = {**few, "max_tokens": 400, "ignore_eos": True}

    with (
        served(engine, plain_image, OMP_NUM_THREADS="1") as (container, url),
        ThreadPoolExecutor(max_workers=8) as threads,
    ):
        # A first prompt of a few tokens is what kills an engine without permission for AMX tiles.
        assert ask(url, "/v1/completions", few)["usage"]["prompt_tokens"] == 3
        begun = Barrier(9)
        streams = [threads.submit(read_stream, url, asked, begun) for _ in range(8)]
        begun.wait(timeout=120)
        container.stop(timeout=30)
        ends = [stream.result(timeout=120) for stream in streams]

        container.reload()
        assert ends == [("length", "[DONE]")] * 8
        assert container.attrs["State"]["ExitCode"] == 0


def test_an_image_without_a_server_fails_with_its_reason(packager: Packager, engine: str) -> None:
    build(packager, "docker:packager-test:scratch")

    done = packager("smoke", "packager-test:scratch", "--timeout", "60", status=4)

    assert "hint: " in done.err
