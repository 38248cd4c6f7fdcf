"""The form of a new job: what is wrong is told by field, the rest becomes a document."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from packager.addons.server.pages.form import (
    Wish,
    build_job,
    document_of,
    faults_of,
    placed,
    read_wish,
    request_of,
)
from packager.addons.server.sagemaker.jumpstart import JumpStart
from packager.addons.server.sagemaker.optimization import make_job
from packager.addons.server.sagemaker.settings import JobSettings
from tests.support.cases import as_type, cases_of, read_tables, shows
from tests.support.known import known

cases = cases_of(__file__)

SETTINGS = JobSettings()
IN_BUCKETS = as_type(read_tables(__file__)["whole_wish"], Wish)


def here(model: Path, **changes: str) -> Wish:
    return replace(IN_BUCKETS, model=str(model), output="oci:out", **changes)


def test_a_model_in_a_bucket_is_asked_for_as_clients_of_the_api_ask() -> None:
    assert document_of(IN_BUCKETS, SETTINGS) == read_tables(__file__)["in_buckets"]


@cases("jobs")
def test_a_form_becomes_a_request_and_commands(tmp_path: Path, case: dict[str, Any]) -> None:
    (tmp_path / "chats.jsonl").write_text("{}")
    form = {name: text.replace("{here}", str(tmp_path)) for name, text in case["form"].items()}
    settings = JobSettings(**case.get("settings", {}))

    job = build_job(replace(IN_BUCKETS, model=str(tmp_path), **form), settings)

    request = json.loads(job.files["request.json"])
    commands = [" ".join(stage.arguments) for stage in job.stages]
    assert (job.kind, job.limits.run_s) == ("command", 36000)
    assert shows(request, {"model": str(tmp_path), **case.get("request", {})}), request
    assert not {*case.get("lacks", ())} & request.keys()
    stated = [text.replace("{here}", str(tmp_path)) for text in case.get("commands", commands)]
    assert commands == stated


@cases("documents")
def test_the_api_takes_the_document(changes: dict[str, str]) -> None:
    found = known(document_of(replace(IN_BUCKETS, **changes), SETTINGS))

    assert make_job(found, SETTINGS).kind == "optimization"


@cases("requests")
def test_what_the_api_cannot_say_is_a_request_of_packager(changes: dict[str, str]) -> None:
    assert document_of(replace(IN_BUCKETS, **changes), SETTINGS) is None


def test_a_directory_means_the_same_wherever_the_job_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)

    assert request_of(here(Path("./model")), SETTINGS)["model"] == str(tmp_path / "model")


def test_an_id_that_is_mapped_stands_for_its_place() -> None:
    mapped = JobSettings(jumpstart=JumpStart(places={"meta-tiny": "s3://models/tiny/"}))
    typed = replace(IN_BUCKETS, model="meta-tiny")

    assert placed(typed, mapped).model == "s3://models/tiny/"
    assert not faults_of(placed(typed, mapped), mapped)
    assert "model" in faults_of(placed(typed, SETTINGS), SETTINGS)


def test_a_form_that_is_right_has_no_faults() -> None:
    assert faults_of(IN_BUCKETS, SETTINGS) == {}


@cases("faults")
def test_what_is_wrong_is_told_beside_its_field(
    changes: dict[str, str], field: str, words: str
) -> None:
    found = faults_of(replace(IN_BUCKETS, **changes), SETTINGS)

    assert list(found) == [field]
    assert words in found[field]


def test_a_server_with_a_place_for_images_asks_for_no_other() -> None:
    settings = JobSettings(images="docker:demo/llm", instance="local")

    assert faults_of(replace(IN_BUCKETS, output="", instance=""), settings) == {}


def test_fields_that_no_form_has_are_left_out() -> None:
    assert read_wish({"name": " a ", "token": "t", "do": "create"}) == Wish(name="a")
