"""A real image with what a real vLLM compiled: used, not compiled again, and equally right."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.live.conftest import COMPILING, Compiled
from tests.live.servers import greedy_tokens, run_inside, served
from tests.support.commandline import TINY, packager_in

pytestmark = [pytest.mark.live, pytest.mark.timeout(1800)]

INSIDE = "packager-test:compiled-inside"
EVERYTHING = os.environ.get("PACKAGER_SERVE") == "all"
COPY = "/tmp/packager-compiled"
PROMPTS = ("The quick brown fox", "def main():")


def caches(container: Any) -> set[str]:
    """Files in the caches, without locks."""
    words = ["find", COPY, "-type", "f", "-not", "-path", "*/locks/*"]
    _, out, _ = run_inside(container, words)
    return {line.removeprefix(f"{COPY}/") for line in out.decode().splitlines()}


@pytest.mark.capability("compile")
@pytest.mark.parametrize(
    "weights",
    [
        "mounted",
        pytest.param(
            "inside",
            marks=pytest.mark.skipif(not EVERYTHING, reason="PACKAGER_SERVE=all compiles this too"),
        ),
    ],
)
def test_an_image_starts_with_its_compile_work_done(
    tmp_path: Path, engine: str, serving_base: str, request: pytest.FixtureRequest, weights: str
) -> None:
    """Where the weights are changes their path alone, by which the engine knows its files."""
    common = (*COMPILING, "--weights", weights, "--base", serving_base)
    if weights == "mounted":
        compiled: Compiled = request.getfixturevalue("compiled")
        model: Path | None = TINY
    else:
        record, cache, model = tmp_path / "record.json", tmp_path / "cache", None
        built = packager_in(tmp_path)(
            *(*common, "--output", f"docker:{INSIDE}", "--record", str(record)),
            env={"PACKAGER_CACHE": str(cache)},
        )
        assert built.status == 0, built.err
        compiled = Compiled(INSIDE, json.loads(record.read_text()), cache)
    [step] = compiled.record["steps"]
    details = step["details"]
    assert details["files"] > 10
    # Half would do to show it; benchmarks/cold_start.py holds it to the target.
    assert details["init_seconds"] < details["init_seconds_without"] / 2

    again = packager_in(tmp_path)(
        *(*common, "--output", f"oci:{tmp_path / 'out'}", "--require-cached"),
        env={"PACKAGER_CACHE": str(compiled.cache)},
    )
    assert again.status == 0, again.err

    with served(engine, compiled.image, model=model) as (container, url):
        assert b"files compiled ahead of time are in place" in container.logs()
        with_them = greedy_tokens(url, PROMPTS)
        _, text, _ = run_inside(container, ["cat", "/opt/packager/compiled/manifest.json"])
        manifest = json.loads(text)
        assert caches(container) == {*manifest["files"]}  # nothing was compiled

    if not EVERYTHING:
        return  # the step compared the answers with those of an engine that compiled

    with served(engine, compiled.image, model=model, PACKAGER_COMPILED="off") as (container, url):
        assert b"compiled ahead of time" not in container.logs()
        assert greedy_tokens(url, PROMPTS) == with_them
