"""Builds with a quantizer that another package brings: its step, its cache, its failures."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.live.checkpoints import read_tensors, unpack_model
from tests.support.cases import cases
from tests.support.commandline import TINY, Done, packager_in
from tests.support.demo_builds import OPTIONS, environment_of
from tests.support.processes import is_alive
from tests.support.running_jobs import until

Run = Callable[..., Done]


@pytest.fixture
def env(tmp_path: Path, tools_dir: Path) -> dict[str, str]:
    return environment_of(tmp_path, tools_dir)


@pytest.fixture
def build(tmp_path: Path, env: dict[str, str]) -> Run:
    run = packager_in(tmp_path)

    def build(method: str, *more: str, out: str = "out", command: str = "build") -> Done:
        words = [command, "--model", str(TINY), "--instance", "local", "--quantize", method]
        if command == "build":
            words += ["--base", "scratch", "--output", f"oci:{out}", "--record", "record.json"]
        return run(*words, *more, env=env)

    return build


def record(directory: Path) -> Any:
    return json.loads((directory / "record.json").read_text())


def weights_of(directory: Path) -> list[str]:
    return [one["digest"] for one in record(directory)["layers"] if one["role"] == "weights"]


def start_build(*more: str, cwd: Path, env: dict[str, str], **how: Any) -> subprocess.Popen[str]:
    """Start a build in a process of its own."""
    command = [sys.executable, "-m", "packager", "build", *OPTIONS, *more]
    return subprocess.Popen(
        command, cwd=cwd, env={**os.environ, **env}, stderr=subprocess.PIPE, text=True, **how
    )


def test_a_second_build_runs_nothing_and_reads_no_weights(tmp_path: Path, build: Run) -> None:
    first = build("demo-copy")
    assert first.status == 0, first.err
    ran = record(tmp_path)["steps"][0]
    time.sleep(2.1)  # files younger than this are read again: they could still change

    second = build("demo-copy")

    reused = record(tmp_path)["steps"][0]
    assert second.out == first.out
    assert (ran["reused"], reused["reused"]) == (False, True)
    assert ran["key"] == reused["key"]
    assert record(tmp_path)["transfer"]["bytes_read"] == 0
    assert "quantize: taken from the cache" in second.err
    assert list((tmp_path / "cache/work").iterdir()) == []


def test_the_files_of_the_step_are_in_the_image(tmp_path: Path, build: Run) -> None:
    plain = build("none")
    seeded = build("demo-copy,seed=7")

    assert plain.status == seeded.status == 0, seeded.err
    assert plain.out != seeded.out
    weights = weights_of(tmp_path)
    build("none")
    assert weights == weights_of(tmp_path)  # the demo copies weights: their layers are shared


def test_a_quantizer_of_another_package_quantizes(tmp_path: Path, build: Run) -> None:
    done = build("demo:demo-rounded")

    assert done.status == 0, done.err
    unpack_model(tmp_path / "out", tmp_path / "rounded")
    before, after = read_tensors(TINY), read_tensors(tmp_path / "rounded")
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        kept = bytes(byte & 0xF0 for byte in tensor.data[::2])
        rounded = bytes(byte for pair in zip(kept, tensor.data[1::2], strict=True) for byte in pair)
        assert after[name].data == (rounded if name.endswith("_proj.weight") else tensor.data)


def test_a_changed_input_misses_and_the_plan_names_the_field(build: Run) -> None:
    build("demo-copy,seed=1")

    [hit] = build("demo-copy,seed=1", "--format", "json", command="plan").document["forecasts"]
    [miss] = build("demo-copy,seed=2", "--format", "json", command="plan").document["forecasts"]
    assert (hit["state"], hit["installs"]) == ("hit", False)
    assert hit["seconds"] > 0
    assert (miss["state"], miss["differs"]) == ("miss", ["/calibration/seed"])


@pytest.mark.parametrize("way", [("plan",), ("build", "--dry-run")], ids=["plan", "dry run"])
def test_no_weights_are_read_to_find_a_key(build: Run, way: tuple[str, ...]) -> None:
    command, *more = way

    done = build("demo-copy", *more, "--format", "json", command=command)

    assert done.status == 0, done.err
    [forecast] = json.loads(done.out)["forecasts"]
    assert forecast["state"] == "unknown"
    assert "when the weights have been read" in forecast["reason"]


def test_a_dry_run_reads_weights_where_all_must_be_in_the_cache(build: Run) -> None:
    refused = build("demo-copy", "--dry-run", "--require-cached")

    assert refused.status == 8
    assert "'quantize' is not in the cache" in refused.err
    assert "when the weights have been read" not in refused.err


def test_a_dry_run_runs_nothing(tmp_path: Path, build: Run) -> None:
    done = build("demo-slow,ran=ran", "--dry-run")

    assert done.status == 0, done.err
    assert "step quantize with demo-tool: not known yet" in done.out  # nothing is read either
    assert not (tmp_path / "ran").exists()


def test_without_a_cache_every_build_runs_the_step(tmp_path: Path, build: Run) -> None:
    ran = tmp_path / "ran"
    for _ in range(2):
        assert build(f"demo-slow,ran={ran}", "--no-cache").status == 0

    assert ran.read_text() == "xx"


def test_two_builders_run_the_tool_once(tmp_path: Path, build: Run, env: dict[str, str]) -> None:
    build("demo-copy")  # makes the environment
    ran = tmp_path / "ran"
    words = ("--quantize", f"demo-slow,ran={ran}")
    both = [
        start_build(*words, "--output", f"oci:out{number}", cwd=tmp_path, env=env)
        for number in range(2)
    ]
    said = [process.communicate(timeout=120) for process in both]

    assert [process.returncode for process in both] == [0, 0], said
    assert ran.read_text() == "x"


@cases("failing")
def test_a_failed_step_publishes_nothing(way: str, words: str, tmp_path: Path, build: Run) -> None:
    done = build(f"demo-{way}")

    assert done.status == 6
    assert words in done.err
    assert not (tmp_path / "out").exists()
    assert list((tmp_path / "cache/artifacts").glob("ac/*/*/*.json")) == []
    assert list((tmp_path / "cache/work").iterdir()) == []
    assert build(f"demo-{way}").status == 6
    assert build("demo-copy").status == 0


def test_what_a_tool_refuses_is_remembered(build: Run) -> None:
    first = build("demo-refuse")
    second = build("demo-refuse")

    assert first.status == second.status == 6
    assert "the model has 7 heads, 8 are needed" in first.err
    assert "these inputs were rejected on" in second.err


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_build_that_is_ended_leaves_no_worker_and_the_next_one_works(
    how: signal.Signals, tmp_path: Path, build: Run, env: dict[str, str]
) -> None:
    build("demo-copy")
    pids = tmp_path / "pids"
    words = ("--quantize", f"demo-orphan,pids={pids}", "--output", "oci:o")
    process = start_build(*words, cwd=tmp_path, env=env, start_new_session=True)
    until(lambda: pids.exists() and " " in pids.read_text())
    process.send_signal(how)
    _, said = process.communicate(timeout=120)

    until(lambda: not any(is_alive(int(pid)) for pid in pids.read_text().split()))
    assert process.returncode == (130 if how == signal.SIGINT else -9), said
    assert not (tmp_path / "o").exists()
    assert build("demo-copy,seed=2").status == 0
    assert list((tmp_path / "cache/work").iterdir()) == []
    assert list((tmp_path / "cache/runs").iterdir()) == []
