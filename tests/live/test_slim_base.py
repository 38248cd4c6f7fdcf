"""Slim bases proven by starting them in Docker, with the engine that starts in a blink."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.tiny_images import commit_files
from tests.support.commandline import TINY, Packager
from tests.support.places import ROOT

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]

PAGES = {f"usr/share/man/man1/page{number}.1": b"m" * 700_000 for number in range(3)}
ENGINE = b"#!/usr/bin/python3\n" + (ROOT / "tests/live/tiny_engine.py").read_bytes()
# The same, but for a file where documentation is that it opens when it starts.
STARTS = b"def main() -> None:\n"
NEEDING = ENGINE.replace(STARTS, STARTS + b'    open("/usr/share/man/man1/page0.1").close()\n')


@pytest.fixture
def commit(docker_host: str, tiny_base: str) -> Iterator[Any]:
    """Return a function that makes a base of the tiny engine and more files."""
    import docker

    engine = docker.DockerClient(base_url=docker_host)
    made: list[str] = []

    def committed(name: str, files: dict[str, bytes]) -> str:
        made.append(commit_files(engine, name, files, base=tiny_base))
        return f"docker:{name}"

    yield committed
    for name in made:
        engine.images.remove(name, force=True)


def proofs_in(docker_host: str) -> list[str]:
    import docker

    engine = docker.DockerClient(base_url=docker_host)
    return [tag for image in engine.images.list() for tag in image.tags if "slim-proof" in tag]


@pytest.mark.capability("slim")
def test_a_slim_base_gives_the_originals_answers_and_builds_use_it(
    packager: Packager, engine: str, commit: Any, tmp_path: Path
) -> None:
    env = {"XDG_CACHE_HOME": str(tmp_path / "caches")}
    base = commit("packager-test-manual:1", {**PAGES, "usr/bin/vllm": ENGINE})
    done = packager(
        *("base", "slim", base, "oci:slim", "--prove-with", str(TINY), "--format", "json"),
        env=env,
        status=0,
    )

    record = json.loads(done.out)
    assert record["gone_bytes"] >= 2_100_000
    assert len(record["proof"]["answers"]) == 2
    assert all(record["proof"]["answers"])
    assert record["layers"][-1]["state"] == "rewritten"
    assert proofs_in(engine) == []
    packager(
        *("build", "--model", str(TINY), "--instance", "local", "--base", "oci:slim"),
        *("--output", "docker:packager-test-slim:1", "--quiet"),
        status=0,
    )
    packager("smoke", "packager-test-slim:1", "--format", "json", status=0)


def test_a_base_whose_engine_needs_what_went_is_refused_and_nothing_is_written(
    packager: Packager, engine: str, commit: Any, tmp_path: Path
) -> None:
    env = {"XDG_CACHE_HOME": str(tmp_path / "caches")}
    base = commit("packager-test-needing:1", {**PAGES, "usr/bin/vllm": NEEDING})
    words = ("base", "slim", base, "oci:slim", "--prove-with", str(TINY))
    refused = packager(*words, env=env)
    was_written = (tmp_path / "slim").exists()
    kept = packager(
        *words, "--keep", "usr/share/man/man1/page0.1", "--format", "json", env=env, status=0
    )

    assert (refused.status, was_written) == (4, False)
    assert "the slim base does not serve" in refused.err
    assert "page0.1" in refused.err  # the container's log
    files = {rule["name"]: rule["files"] for rule in json.loads(kept.out)["rules"]}
    assert files["documentation"] == 2
    assert proofs_in(engine) == []
    assert not list((tmp_path / "caches/packager").glob("slim-*"))
