"""`--gpus`: what cannot be is refused before anything is looked for, read or downloaded.

The model is nowhere, so that whoever looked for it first would say so.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from packager.cli.app import app
from tests.integration.catalog.test_machine import nvidia_smi
from tests.support.cases import cases, read_tables
from tests.support.commandline import TINY

TABLES = read_tables(__file__)


NOWHERE = "/nowhere/at/all"
COMMANDS: dict[str, list[str]] = {
    name: text.format(nowhere=NOWHERE).split()
    for name, text in read_tables(__file__)["commands"].items()
}


@pytest.fixture(autouse=True)
def one_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with one GPU, as its driver describes it."""
    nvidia_smi(tmp_path, "NVIDIA A10G, 23028, 8.6")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def said(result: Result) -> str:
    return result.output + str(result.exception)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_two_gpus_where_there_is_one_are_refused_at_once(command: tuple[str, ...]) -> None:
    refused = run(*command, "--gpus", "2")

    assert "2 GPUs are requested, there is 1" in said(refused)
    assert getattr(refused.exception, "exit_code", None) == 3


@pytest.mark.parametrize("wish", ["1", "0", "auto"])
def test_what_is_there_is_not_refused(wish: str) -> None:
    assert NOWHERE in said(run(*COMMANDS["build"], "--gpus", wish))


def test_a_gpu_that_a_scheduler_kept_from_us_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    assert "1 GPU is requested, there is none" in said(run(*COMMANDS["build"], "--gpus", "1"))


def test_results_of_other_machines_gpus_are_taken_where_nothing_may_run() -> None:
    """A build on a machine without GPUs takes from the cache what one with GPUs has made."""
    assert NOWHERE in said(run(*COMMANDS["build"], "--gpus", "8", "--require-cached"))


@pytest.mark.parametrize("text", ["-1", "65", "two", "1.5", "", "٣", "9999999"])
def test_what_is_no_number_of_gpus_is_refused(text: str) -> None:
    refused = run(*COMMANDS["plan"], "--gpus", text)

    assert "is not a number from 0 to 64" in said(refused)
    assert getattr(refused.exception, "exit_code", None) == 2


@cases("fields")
def test_a_request_file_may_say_it(field: str, refusal: str, tmp_path: Path) -> None:
    file = tmp_path / "request.toml"
    file.write_text(f'model = "{NOWHERE}"\ninstance = "ml.g5.xlarge"\nquantize = "awq"\n{field}\n')

    refused = said(run("plan", "--request", str(file)))

    assert refusal in refused
    assert NOWHERE not in refused.replace(str(file), "")


GRID = TABLES["grid"]


@cases("jobs_of_a_fleet_have_the_gpus_that_their_keys_say")
def test_jobs_of_a_fleet_have_the_gpus_that_their_keys_say(
    field: str, options: tuple[str, ...], gpus: int, tmp_path: Path
) -> None:
    """On its node a job chose anew, came to another key and ended as out of date."""
    (tmp_path / "grid.toml").write_text(GRID.format(model=TINY, field=field))

    planned = run("warm", "plan", "grid.toml", "--format", "json", *options)

    (job,) = json.loads(planned.stdout)["jobs"]
    assert job["request"]["gpus"] == gpus
    resources = job["resources"]
    assert (resources["devices"], resources["accelerator"], resources["device"]) == (
        (gpus, "nvidia", "") if gpus else (0, "cpu", "")
    )


def test_another_device_is_another_key(tmp_path: Path) -> None:
    keys = set()
    for gpus in ("0", "1"):
        (tmp_path / "grid.toml").write_text(GRID.format(model=TINY, field=f"gpus = {gpus}"))
        planned = run("warm", "plan", "grid.toml", "--format", "json")
        keys |= {job["key"] for job in json.loads(planned.stdout)["jobs"]}

    assert len(keys) == 2


def test_a_finished_plan_is_not_given_other_gpus(tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(GRID.format(model=TINY, field=""))
    run("warm", "plan", "grid.toml", "--output", "plan.json")

    refused = run("warm", "run", "plan.json", "--gpus", "1")

    assert "the file is a plan" in said(refused)
