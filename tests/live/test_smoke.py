"""The whole line: a real vLLM answers from a container that packager built."""

from __future__ import annotations

import json

import pytest

from tests.commandline import TINY, Packager

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500)]

BUSY = ("--env", "OMP_NUM_THREADS=1")  # threads of a small model only wait for each other


def test_a_built_image_answers(packager: Packager, engine: str, serving_base: str) -> None:
    built = packager(
        *("build", "--model", str(TINY), "--instance", "local", "--base", serving_base),
        *("--output", "docker:packager-test:tiny", "--quiet"),
    )
    assert built.status == 0, built.err

    done = packager("smoke", "packager-test:tiny", "--max-tokens", "24", *BUSY, "--format", "json")

    assert done.status == 0, done.err
    result = json.loads(done.out)
    chat, invocations = result["answers"]
    assert result["model"] == "model"
    assert 1 <= chat["tokens"] <= 24
    assert 1 <= invocations["tokens"] <= 24
    assert chat["text"].strip()


def test_an_image_without_a_server_fails_with_its_reason(packager: Packager, engine: str) -> None:
    packager(
        *("build", "--model", str(TINY), "--instance", "local", "--base", "scratch"),
        *("--output", "docker:packager-test:scratch", "--quiet"),
    )

    done = packager("smoke", "packager-test:scratch", "--timeout", "60")

    assert done.status == 4
    assert "hint: " in done.err


def test_an_image_that_is_not_there_is_not_found(packager: Packager, engine: str) -> None:
    done = packager("smoke", "packager-test:nowhere")

    assert done.status == 66
    assert "packager-test:nowhere" in done.err
