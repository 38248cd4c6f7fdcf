"""Pages beside the API they go through: what one makes, clients of the other see."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.api_server import ApiServer
from tests.support.cases import read_tables
from tests.support.served_pages import Visitor

ASKED = read_tables(__file__)["asked"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    with ApiServer(tmp_path, with_pages=True) as running:
        yield running


@pytest.fixture
def visitor(server: ApiServer) -> Visitor:
    return Visitor(server.url)


def test_a_job_of_the_form_is_one_of_the_api(server: ApiServer, visitor: Visitor) -> None:
    status, headers, _ = visitor.post("/ui/jobs/new", ASKED)

    assert (status, headers["location"]) == (303, "/ui/jobs/optimization/llama-awq")
    described = server.client("sagemaker").describe_optimization_job(
        OptimizationJobName="llama-awq"
    )
    assert described["StoppingCondition"] == {"MaxRuntimeInSeconds": 7200}
    assert described["OptimizationJobStatus"] == "STARTING"
    assert "s3://models/llama/" in visitor.get("/ui/jobs")[2]


def test_a_name_that_is_taken_is_told_in_the_form(server: ApiServer, visitor: Visitor) -> None:
    visitor.post("/ui/jobs/new", ASKED)
    status, _, text = visitor.post("/ui/jobs/new", ASKED)

    assert status == 400
    assert "llama-awq" in text
    assert "The job was not made" in text


def test_a_job_of_a_client_is_stopped_by_a_page(server: ApiServer, visitor: Visitor) -> None:
    visitor.post("/ui/jobs/new", ASKED)
    visitor.post("/ui/jobs/optimization/llama-awq/stop", {})

    described = server.client("sagemaker").describe_optimization_job(
        OptimizationJobName="llama-awq"
    )
    assert described["OptimizationJobStatus"] in ("STOPPING", "STOPPED")


def test_endpoints_are_listed_and_a_missing_one_named(server: ApiServer, visitor: Visitor) -> None:

    assert "There is no endpoint." in visitor.get("/ui/endpoints")[2]
    status, _, text = visitor.get("/ui/endpoints/none")
    assert (status, "Not done" in text) == (400, True)


def test_an_endpoint_that_cannot_run_says_why(server: ApiServer, visitor: Visitor) -> None:
    status, headers, _ = visitor.post("/ui/endpoints/new", {"name": "tiny", "image": "none:1"})

    assert (status, headers["location"]) == (303, "/ui/endpoints/tiny")
    models = server.client("sagemaker").list_models()["Models"]
    assert [model["ModelName"] for model in models] == ["tiny"]
    assert visitor.get("/ui/endpoints/tiny")[0] == 200
    assert visitor.post("/ui/endpoints/tiny/delete", {})[0] == 303
    assert server.client("sagemaker").list_models()["Models"] == []


def test_a_server_without_pages_has_none(tmp_path: Path) -> None:
    with ApiServer(tmp_path) as running, pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{running.url}/ui/jobs", timeout=60)

    assert refused.value.code == 404
