"""scripts/gpu-campaign as a user runs it, without running its long stages."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from benchmarks.campaign.stages import Failure
from benchmarks.campaign.work import Campaign, Ran, Settings
from tests.support.cases import cases, read_tables
from tests.support.places import SCRIPTS
from tests.support.processes import run_python


def campaign(*words: object, status: int | None = 1, **environment: str) -> CompletedProcess[str]:
    return run_python(SCRIPTS / "gpu-campaign", *words, status=status, env=environment)


def test_a_dry_run_prints_every_stage_and_writes_nothing(tmp_path: Path) -> None:
    done = campaign(
        "--directory", tmp_path / "new", "--methods", "fp8-static,awq", "--dry-run", status=0
    )

    assert not (tmp_path / "new").exists()
    *lines, last = done.stdout.splitlines()
    assert json.loads(last)["stages"] == read_tables(__file__)["stages"]
    assert [line.split()[0] for line in lines] == json.loads(last)["stages"]
    assert "quantize it by awq on the GPU" in done.stdout


def test_a_machine_without_a_gpu_is_told_so_and_nothing_else_runs(tmp_path: Path) -> None:
    done = campaign("--directory", tmp_path, "--methods", "fp8-static", PATH=str(tmp_path / "none"))

    document = json.loads(done.stdout.splitlines()[-1])
    assert (document["done"], document["of"]) == (0, 9)
    assert document["stages"]["machine"]["why"] == "no NVIDIA GPU is here"
    assert document["stages"]["machine"]["hint"] == "--cpu runs the campaign on the processor"
    assert document["stages"]["model"] == {"state": "not run", "why": "needs machine"}
    assert json.loads((tmp_path / "campaign.json").read_bytes()) == document


@cases("refused")
def test_wrong_wishes_are_refused(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    done = campaign("--directory", tmp_path / "new", *arguments)

    assert f"error: {said}" in done.stderr
    assert not (tmp_path / "new").exists()


def test_a_campaign_of_other_settings_is_not_gone_on_with(tmp_path: Path) -> None:
    campaign("--directory", tmp_path, "--only", "estimates", status=None)

    done = campaign("--directory", tmp_path, "--only", "estimates", "--size", "8b")

    assert "has a campaign with other settings" in done.stderr


def test_two_campaigns_do_not_share_a_directory(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = campaign("--directory", tmp_path, "--only", "estimates")

    assert "another campaign runs in" in done.stderr


def test_estimates_and_times_are_those_of_the_events() -> None:
    ran = Ran()
    started = {"event": "step", "step": "quantize", "state": "started", "eta_s": 12.5, "seconds": 0}
    for event in (
        started,
        {**started, "state": "running", "eta_s": 3.0, "seconds": 9.0},
        {**started, "state": "finished", "eta_s": None, "seconds": 15.0},
    ):
        ran.hear(json.dumps(event) + "\n")
    ran.hear("warning: going on after block 4 of 5: AWQModifier\n")
    ran.hear('{"event": "total", "layers": 3}\n')

    assert ran.steps == {"quantize": {"estimated_s": 12.5, "measured_s": 15.0}}
    assert ran.words == ["warning: going on after block 4 of 5: AWQModifier"]


@cases("reasons")
def test_the_reason_of_a_failed_command_is_told(words: list[str], error: str) -> None:
    assert Ran(words=words).error() == error


class Elsewhere(Campaign):
    """A campaign whose builds run on the processor, whatever they are asked for."""

    def packager(self, stage: str, arguments: Sequence[str], *, kill: bool = False) -> Ran:
        step = {
            "name": "quantize", "seconds": 1.0, "peak_memory_bytes": 1, "versions": {},
            "details": {"device": "cpu"},
        }  # fmt: skip
        record = self.work(stage) / "record.json"
        record.write_text(json.dumps({"steps": [step], "seconds": 2.0}))
        return Ran()


def test_a_quantization_that_used_no_gpu_is_not_taken_for_one_that_did(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="it ran on 'cpu' instead of 'cuda'"):
        Elsewhere(Settings(directory=tmp_path)).quantize("awq", "device")


def test_estimates_are_held_within_a_factor_of_two(tmp_path: Path) -> None:
    one = Campaign(Settings(directory=tmp_path, methods=("fp8-static",)))
    times = {
        "quantize-fp8-static-device": (10, 20),
        "quantize-fp8-static-host": (10, 4.9),
        "train": (8, 8.4),
    }
    for name, (estimated, measured) in times.items():
        steps = {"x": {"estimated_s": estimated, "measured_s": measured}, "model": {}}
        one.journal.write(name, {"state": "done", "figures": {"steps": steps}})

    found = one.estimates()

    assert [row["ratio"] for row in found["rows"]] == [2.0, 0.49, 1.05]
    assert (found["within_factor_2"], found["of"]) == (2, 3)


def test_nobodys_cache_reaches_a_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACKAGER_CACHE_SHARED", "dir:/everybodys")
    one = Campaign(Settings(directory=tmp_path))

    first, second = one.environment("quantize-fp8-static-device"), one.environment("train")

    assert "PACKAGER_CACHE_SHARED" not in first
    assert first["PACKAGER_CACHE"] != second["PACKAGER_CACHE"]
    assert first["XDG_CONFIG_HOME"] == str(tmp_path / "config")
