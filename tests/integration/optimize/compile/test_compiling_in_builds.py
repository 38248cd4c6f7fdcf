"""Builds with a compiler that another package brings: hits, misses, and what may run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.commandline import TINY, Done, packager_in
from tests.support.demo_builds import environment_of
from tests.support.demo_builds import tools_dir as tools_dir

Run = Callable[..., Done]


@pytest.fixture
def run(tmp_path: Path, tools_dir: Path) -> Run:
    """Build or plan upon an image that is a base by having a digest."""
    packager = packager_in(tmp_path)
    env = environment_of(tmp_path, tools_dir)
    common = ["--model", str(TINY), "--instance", "local"]
    packager("build", *common, "--base", "scratch", "--output", "oci:base", env=env, status=0)

    def run(*words: str, command: str = "build") -> Done:
        told = [command, *common]
        if command == "build":
            told += ["--base", "oci:base", "--output", "oci:out", "--record", "record.json"]
        return packager(*told, *words, env=env)

    return run


def record(directory: Path) -> Any:
    return json.loads((directory / "record.json").read_text())


def roles(directory: Path) -> list[str]:
    return [layer["role"] for layer in record(directory)["layers"]]


def test_what_was_compiled_is_a_layer_and_a_hit_the_next_time(tmp_path: Path, run: Run) -> None:
    first = run("--compile", "demo_compiler")
    assert first.status == 0, first.err
    assert "compiled" in roles(tmp_path)

    second = run("--compile", "demo_compiler", "--require-cached")

    assert second.status == 0, second.err
    assert second.out == first.out
    assert [step["reused"] for step in record(tmp_path)["steps"]] == [True]


def test_a_miss_that_may_not_run_ends_with_a_status_of_its_own(run: Run) -> None:
    empty = run("--compile", "demo_compiler", "--require-cached")
    assert (empty.status, empty.out) == (8, "")
    assert "step 'compile' is not in the cache" in empty.err

    run("--compile", "demo_compiler")
    other = run("--compile", "demo_compiler", "--require-cached", "--max-batch", "4", "--dry-run")

    assert other.status == 8
    assert "/shape/max_batch" in other.err


def test_nothing_to_run_is_nothing_to_require(run: Run) -> None:
    assert run("--require-cached").status == 0


def test_a_miss_that_may_not_compile_is_said_and_left_out(tmp_path: Path, run: Run) -> None:
    plain = run()
    skipped = run("--compile", "demo_compiler", "--no-compile-on-miss")

    assert skipped.status == 0, skipped.err
    assert "compile-skipped" in [found["code"] for found in record(tmp_path)["findings"]]
    assert "compiled" not in roles(tmp_path)
    assert record(tmp_path)["steps"] == []
    assert plain.status == 0


def test_the_quantized_model_is_what_is_compiled(tmp_path: Path, run: Run) -> None:
    done = run("--quantize", "demo-copy", "--compile", "demo_compiler")

    assert done.status == 0, done.err
    assert [step["name"] for step in record(tmp_path)["steps"]] == ["quantize", "compile"]


def test_the_local_executor_says_that_compiling_for_vllm_takes_a_container(run: Run) -> None:
    done = run("--compile", "vllm_cache")

    assert (done.status, done.out) == (69, "")
    assert "runs in the serving image itself" in done.err
    assert "--executor docker" in done.err


def test_a_wrong_name_lists_the_compilers(run: Run) -> None:
    done = run("--compile", "nobody", command="plan")

    assert done.status == 3
    assert "auto, vllm_cache, " in done.err
    assert "demo_compiler" in done.err
