"""A real image with what a real vLLM compiled: used, not compiled again, and equally right."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.live.servers import ask, run_inside, served
from tests.support.commandline import TINY, Packager

pytestmark = [pytest.mark.live, pytest.mark.timeout(1800)]

IMAGE = "packager-test:compiled"
COPY = "/tmp/packager-compiled"
PROMPTS = ("The quick brown fox", "def main():")


def answers(url: str) -> list[list[str]]:
    """Tokens of greedy answers."""
    found = []
    for prompt in PROMPTS:
        body = {"model": "tiny-llama", "prompt": prompt, "max_tokens": 24, "temperature": 0}
        answer = ask(url, "/v1/completions", {**body, "logprobs": 1})
        found.append(answer["choices"][0]["logprobs"]["tokens"])
    return found


def caches(container: Any) -> set[str]:
    """Files in the caches, without locks."""
    words = ["find", COPY, "-type", "f", "-not", "-path", "*/locks/*"]
    _, out, _ = run_inside(container, words)
    return {line.removeprefix(f"{COPY}/") for line in out.decode().splitlines()}


def test_an_image_starts_with_its_compile_work_done(
    tmp_path: Path, packager: Packager, engine: str, serving_base: str
) -> None:
    common = (
        *("build", "--model", str(TINY), "--instance", "local", "--base", serving_base),
        *("--compile", "vllm_cache", "--executor", "docker", "--quiet"),
    )
    record = tmp_path / "record.json"
    built = packager(*common, "--output", f"docker:{IMAGE}", "--record", str(record))
    assert built.status == 0, built.err
    [step] = json.loads(record.read_text())["steps"]
    details = step["details"]
    assert details["files"] > 10
    # Half would do to show it; benchmarks/cold_start.py holds it to the target.
    assert details["init_seconds"] < details["init_seconds_without"] / 2

    again = packager(*common, "--output", f"oci:{tmp_path / 'out'}", "--require-cached")
    assert again.status == 0, again.err

    with served(engine, IMAGE) as (container, url):
        assert b"files compiled ahead of time are in place" in container.logs()
        with_them = answers(url)
        _, text, _ = run_inside(container, ["cat", "/opt/packager/compiled/manifest.json"])
        manifest = json.loads(text)
        assert caches(container) == {*manifest["files"]}  # nothing was compiled

    if os.environ.get("PACKAGER_SERVE") != "all":
        return  # the step compared the answers with those of an engine that compiled

    with served(engine, IMAGE, PACKAGER_COMPILED="off") as (container, url):
        assert b"compiled ahead of time" not in container.logs()
        assert answers(url) == with_them
