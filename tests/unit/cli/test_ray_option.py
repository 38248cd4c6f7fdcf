"""`--executor ray`: refused before any work where it cannot end well. No cluster here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from packager.cli import app
from packager.cli.options import make_request
from packager.cli.wiring.settings import Settings
from packager.core.errors import UsageError
from packager.core.request import BuildRequest
from packager.optimize.cache.options import CacheOptions
from packager.optimize.steps.ray.connection import _refused, join_cluster
from packager.pipeline.record import PLACES, RUNNING
from tests.support.cases import cases
from tests.support.commandline import TINY
from tests.support.sagemaker_bodies import AWQ

MODEL = ("--model", str(TINY))
COMMANDS = {
    "build": (*("build", *MODEL, "--instance", "local", "--quantize", "fp8"), "--output", "oci:o"),
    "dry-run": ("build", *MODEL, "--instance", "local", "--quantize", "fp8", "--dry-run"),
    "plan": ("plan", *MODEL, "--instance", "local", "--quantize", "fp8"),
    "evaluate": ("evaluate", "--base", str(TINY), "--candidate", str(TINY)),
    "draft-train": ("draft", "train", *MODEL, "--method", "medusa", "--output", "head"),
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.mark.parametrize("command", COMMANDS)
@cases("without_a_shared_cache_that_may_be_written_ray_is_refused_before_any_work")
def test_without_a_shared_cache_that_may_be_written_ray_is_refused_before_any_work(
    capsys: pytest.CaptureFixture[str], command: str, options: tuple[str, ...], words: str
) -> None:
    status = app.run([*COMMANDS[command], "--executor", "ray", *options])

    said = capsys.readouterr()
    assert status == 2
    assert words in said.err
    assert "--cache-shared s3://BUCKET/PREFIX" in said.err
    assert not Path("o").exists()


@pytest.mark.parametrize("command", ["optimize", "serve"])
@cases("jobs_whose_results_could_not_come_back_are_not_made")
def test_jobs_whose_results_could_not_come_back_are_not_made(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    shared: str,
    options: tuple[str, ...],
    words: str,
) -> None:
    monkeypatch.setenv("PACKAGER_CACHE_SHARED", shared)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    document = ("--cli-input-json", json.dumps(AWQ)) if command == "optimize" else ()

    status = app.run([command, *document, *options])

    said = capsys.readouterr()
    assert status == 2
    assert words in said.err
    assert ("PACKAGER_CACHE_SHARED=s3://BUCKET/PREFIX" in said.err) == ("--executor" in options)
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_cluster_without_the_executor_that_uses_it_is_refused(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert app.run([*COMMANDS[command], "--address", "10.0.0.1:6379"]) == 2
    assert "add --executor ray" in capsys.readouterr().err


@cases("a_file_names_who_runs_steps")
def test_a_file_names_who_runs_steps(
    tmp_path: Path, text: str, executor: str | None, address: str | None
) -> None:
    file = tmp_path / "request.toml"
    file.write_text(f'model = "m"\ninstance = "local"\n{text}\n')

    request = make_request(file)
    option = make_request(file, executor="local")

    assert (request.executor, request.address) == (executor, address)
    assert option.executor == "local"


def test_where_steps_run_is_in_no_label_and_no_record() -> None:
    assert sorted(PLACES) == ["address", "executor", "trust_roots"]
    assert PLACES < RUNNING
    assert set(BuildRequest.model_fields) >= RUNNING


@cases("another_sort_of_address_is_refused")
def test_another_sort_of_address_is_refused(address: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        join_cluster("", {"RAY_ADDRESS": address})


@cases("what_ray_says_becomes_a_failure_with_a_hint")
def test_what_ray_says_becomes_a_failure_with_a_hint(said: str, message: str, hint: str) -> None:
    failure = _refused("h:1", RuntimeError(said))

    assert message in failure.message
    assert hint in failure.hint
    assert "\n" not in failure.message


def test_nodes_are_told_of_caches_and_keys_and_of_no_credentials(tmp_path: Path) -> None:
    from packager.cli.wiring.presence import shared_cache_variables

    settings = Settings(
        cache=CacheOptions(
            shared=("s3://bucket/prefix",),
            require_signed=True,
            trusted_keys=tmp_path / "keys.json",
            signing_key=tmp_path / "key.pem",
        ),
        environment={"AWS_SECRET_ACCESS_KEY": "canary", "HF_TOKEN": "canary"},
    )

    assert shared_cache_variables(settings) == {
        "PACKAGER_CACHE_SHARED": "s3://bucket/prefix?lease=no",
        "PACKAGER_CACHE_REQUIRE_SIGNED": "1",
        "PACKAGER_CACHE_TRUSTED_KEYS": str(tmp_path / "keys.json"),
        "PACKAGER_CACHE_SIGNING_KEY": str(tmp_path / "key.pem"),
    }


def test_the_executor_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["list", "executors", "--format", "json"]) == 0

    listed = json.loads(capsys.readouterr().out)
    assert "ray" in json.dumps(listed)
