"""An image of packager from `deploy sagemaker apply` to `delete`, on a real server and engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.api_server import ROLE, ApiServer, api_server
from tests.support.commandline import TINY, Packager

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]

IMAGES = ("packager-test-deploy:1", "packager-test-deploy:2")


@pytest.fixture
def images(docker_host: str, tiny_base: str, packager: Packager) -> tuple[str, ...]:
    """Two images on an engine that starts in a blink; the names that clients send differ."""
    for number, image in enumerate(IMAGES, 1):
        packager(
            *("build", "--model", str(TINY), "--instance", "ml.c7i.4xlarge", "--compile", "off"),
            *("--base", f"docker:{tiny_base}", "--output", f"docker:{image}", "--quiet"),
            *("--family", "vllm", "--served-name", f"tiny-{number}"),
            env={"DOCKER_HOST": docker_host},
            status=0,
        )
    return IMAGES


@pytest.fixture
def api(tmp_path: Path, engine: str) -> Iterator[ApiServer]:
    with api_server(tmp_path) as server:
        yield server


def test_an_endpoint_is_made_asked_updated_taken_back_and_deleted(
    images: tuple[str, ...], api: ApiServer, packager: Packager, docker_host: str
) -> None:
    env = {**api.variables(), "DOCKER_HOST": docker_host}

    def sagemaker(*arguments: str) -> Any:
        return packager("deploy", "sagemaker", *arguments, env=env, status=0)

    def check_answer(image: str) -> None:
        """Ask for the model that the image serves: the engine refuses any other name."""
        assert image in sagemaker("status", "tiny", "--wait").out
        answer = sagemaker("invoke", "tiny", "--prompt", "Hello", "--max-tokens", "1").out
        assert json.loads(answer)["choices"]

    def apply(image: str, *more: str) -> Any:
        named = ("--role-arn", ROLE, "--name", "tiny")
        return sagemaker("apply", f"docker:{image}", *named, *(more or ("--format", "json")))

    created = json.loads(apply(images[0]).out)["changes"]
    assert [one["kind"] for one in created] == ["create"] * 3
    check_answer(images[0])
    assert [one["kind"] for one in json.loads(apply(images[0]).out)["changes"]] == ["same"] * 3

    assert json.loads(apply(images[1]).out)["changes"][-1]["kind"] == "update"
    check_answer(images[1])
    measured = apply(images[1], "--smoke", "--bench").out
    assert "sagemaker://tiny" in measured
    told = packager("inspect", f"docker:{images[1]}", "--format", "json", env=env)
    found = json.loads(told.out)
    assert found["smoke"]["deployment"] == "sagemaker tiny"
    (load, *_) = found["bench"]["variants"][0]["loads"]
    assert load["answered"] == load["requests"] > 0
    assert "benchmark of" in packager("lineage", "tiny", env=env).out

    sagemaker("rollback", "tiny")
    check_answer(images[0])

    assert len(sagemaker("delete", "tiny").out.splitlines()) == 5
    assert sagemaker("status", "tiny").out == "state     absent\n"
