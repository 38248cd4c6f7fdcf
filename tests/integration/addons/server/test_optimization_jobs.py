"""Optimization jobs through AWS's own client."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from packager.addons.server.jobs.values import BackgroundJob
from packager.addons.server.sagemaker.settings import JobSettings
from tests.support.api_server import REGION, ApiServer, optimization_body
from tests.support.cases import cases, read_tables

COMPILE = read_tables(__file__)["compile"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    with ApiServer(tmp_path) as running:
        yield running


@pytest.fixture
def client(server: ApiServer) -> Any:
    return server.client("sagemaker")


def code_of(error: pytest.ExceptionInfo[ClientError]) -> str:
    return str(error.value.response["Error"]["Code"])


def test_a_job_is_created_described_and_found(server: ApiServer, client: Any) -> None:
    before = datetime.now(UTC)
    made = client.create_optimization_job(**optimization_body("one"))
    told = client.describe_optimization_job(OptimizationJobName="one")

    arn = "arn:aws:sagemaker:us-east-1:000000000000:optimization-job/one"
    assert made["OptimizationJobArn"] == told["OptimizationJobArn"] == arn
    assert told["OptimizationJobStatus"] == "STARTING"
    assert told["OptimizationConfigs"] == optimization_body("one")["OptimizationConfigs"]
    assert abs((told["CreationTime"] - before).total_seconds()) < 60
    job = server.jobs.get("optimization", "one")
    assert job.asked.stages[-1].arguments[0] == "build"
    assert (job.folder / "request.json").is_file()


def test_a_name_is_used_once(client: Any) -> None:
    client.create_optimization_job(**optimization_body("one"))

    with pytest.raises(client.exceptions.ResourceInUse, match="one"):
        client.create_optimization_job(**optimization_body("one"))


def test_a_name_is_free_again_once_its_job_is_deleted(client: Any) -> None:
    client.create_optimization_job(**optimization_body("one"))
    with pytest.raises(ClientError, match="has not ended") as running:
        client.delete_optimization_job(OptimizationJobName="one")
    assert code_of(running) == "ValidationException"
    client.stop_optimization_job(OptimizationJobName="one")
    client.delete_optimization_job(OptimizationJobName="one")

    client.create_optimization_job(**optimization_body("one"))


@pytest.mark.parametrize("operation", ["describe", "stop", "delete"])
def test_a_job_that_is_not_there_is_told_as_aws_tells_it(client: Any, operation: str) -> None:
    with pytest.raises(client.exceptions.ResourceNotFound) as found:
        getattr(client, f"{operation}_optimization_job")(OptimizationJobName="none")

    assert found.value.response["Error"]["Message"] == "there is no optimization job 'none'"
    assert found.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400


def test_a_stopped_job_says_so(client: Any) -> None:
    client.create_optimization_job(**optimization_body("one"))
    client.stop_optimization_job(OptimizationJobName="one")
    client.stop_optimization_job(OptimizationJobName="one")  # as often as one likes

    told = client.describe_optimization_job(OptimizationJobName="one")
    assert told["OptimizationJobStatus"] == "STOPPED"
    assert told["FailureReason"] == "stopped by request"
    assert told["OptimizationEndTime"] >= told["CreationTime"]


@cases("refused")
def test_a_refused_body_is_no_job(server: ApiServer, changes: dict[str, Any], said: str) -> None:
    client = server.client("sagemaker", checks=False)
    with pytest.raises(ClientError, match=said) as refused:
        client.create_optimization_job(**optimization_body("one", **changes))

    assert code_of(refused) == "ValidationException"
    assert client.list_optimization_jobs()["OptimizationJobSummaries"] == []


@pytest.fixture
def many(server: ApiServer, client: Any) -> list[BackgroundJob]:
    for number in range(7):
        configs = {"OptimizationConfigs": COMPILE} if number % 3 == 0 else {}
        client.create_optimization_job(**optimization_body(f"job-{number}", **configs))
    client.stop_optimization_job(OptimizationJobName="job-2")
    client.stop_optimization_job(OptimizationJobName="job-3")
    return [server.jobs.get("optimization", f"job-{number}") for number in range(7)]


def names(answer: dict[str, Any]) -> list[str]:
    return [each["OptimizationJobName"] for each in answer["OptimizationJobSummaries"]]


def numbered(*numbers: int) -> list[str]:
    return [f"job-{number}" for number in numbers]


def test_lists_are_filtered_and_sorted_as_asked(client: Any, many: list[BackgroundJob]) -> None:
    found = {
        row["id"]: names(client.list_optimization_jobs(**row["query"]))
        for row in read_tables(__file__)["lists"]
    }

    assert found == {row["id"]: numbered(*row["found"]) for row in read_tables(__file__)["lists"]}
    assert names(client.list_optimization_jobs(LastModifiedTimeAfter=many[2].modified)) == ["job-3"]


@pytest.mark.parametrize("token", ["x", "e30=", "[]" * 2000], ids=["short", "empty", "long"])
def test_a_token_of_nowhere_is_refused(client: Any, token: str) -> None:
    with pytest.raises(ClientError) as refused:
        client.list_optimization_jobs(NextToken=token)
    assert code_of(refused) == "ValidationException"


def test_pages_show_every_job_once(client: Any, many: list[BackgroundJob]) -> None:
    def paged(size: int, **filters: Any) -> list[list[str]]:
        pager = client.get_paginator("list_optimization_jobs")
        pages = pager.paginate(PaginationConfig={"PageSize": size}, **filters)
        return [names(page) for page in pages]

    assert paged(3) == [numbered(0, 1, 2), numbered(3, 4, 5), numbered(6)]
    found = paged(2, OptimizationContains="Compilation")
    assert [name for page in found for name in page] == numbered(0, 3, 6)
    assert found[0] == numbered(0, 3)


def test_tags_are_those_of_the_request_and_of_later_ones(client: Any) -> None:
    tags = [{"Key": "team", "Value": "a"}, {"Key": "cost", "Value": "1"}]
    later = [{"Key": "team", "Value": "b"}, {"Key": "x", "Value": ""}]
    made = client.create_optimization_job(**optimization_body("one", Tags=tags))
    arn = made["OptimizationJobArn"]

    client.add_tags(ResourceArn=arn, Tags=later)
    client.delete_tags(ResourceArn=arn, TagKeys=["cost", "none"])

    assert client.list_tags(ResourceArn=arn)["Tags"] == later


def test_tags_have_their_limits(client: Any) -> None:
    arn = client.create_optimization_job(**optimization_body("one"))["OptimizationJobArn"]
    client.add_tags(ResourceArn=arn, Tags=[{"Key": f"k{n}", "Value": ""} for n in range(50)])

    with pytest.raises(client.exceptions.ResourceLimitExceeded):
        client.add_tags(ResourceArn=arn, Tags=[{"Key": "more", "Value": ""}])
    for ours, other in read_tables(__file__)["other_arns"]:
        with pytest.raises(client.exceptions.ResourceNotFound):
            client.list_tags(ResourceArn=arn.replace(ours, other))


def test_the_operator_decides_account_and_region_of_arns(tmp_path: Path) -> None:
    settings = JobSettings(region=REGION, account="123456789012", instance="local")
    with ApiServer(tmp_path, settings=settings) as server:
        client = server.client("sagemaker")
        arn = client.create_optimization_job(**optimization_body("one"))["OptimizationJobArn"]

        assert arn == "arn:aws:sagemaker:us-east-1:123456789012:optimization-job/one"
        assert server.client("sts").get_caller_identity()["Account"] == "123456789012"


def test_an_operation_that_is_not_offered_is_unknown(client: Any) -> None:
    with pytest.raises(ClientError, match="ListTrainingJobs") as refused:
        client.list_training_jobs()

    assert code_of(refused) == "UnknownOperationException"


def test_the_log_of_a_job_is_read_on_while_it_grows(server: ApiServer, client: Any) -> None:
    client.create_optimization_job(**optimization_body("one"))
    log = server.jobs.get("optimization", "one").log
    log.write_text("2026-01-02T03:04:05.678Z build first\n2026-01-02T03:04:06.000Z build half")
    logs = server.client("logs")
    where = {"logGroupName": "/aws/sagemaker/OptimizationJobs", "logStreamName": "one"}

    first = logs.get_log_events(startFromHead=True, **where)
    with log.open("a") as file:
        file.write(" and whole\n")
    second = logs.get_log_events(nextToken=first["nextForwardToken"], **where)
    third = logs.get_log_events(nextToken=second["nextForwardToken"], **where)

    assert [(each["timestamp"], each["message"]) for each in first["events"]] == [
        (1767323045678, "build first")
    ]
    assert [each["message"] for each in second["events"]] == ["build half and whole"]
    assert third["events"] == []
    assert third["nextForwardToken"] == second["nextForwardToken"]


def test_streams_and_events_are_found_by_name(server: ApiServer, client: Any) -> None:
    for name in ("one", "only", "two"):
        client.create_optimization_job(**optimization_body(name))
        server.jobs.get("optimization", name).log.write_text(
            "".join(f"2026-01-02T03:04:0{n}.000Z build {name} {n}\n" for n in range(3))
        )
    logs = server.client("logs")
    group = "/aws/sagemaker/OptimizationJobs"

    streams = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix="on")
    events = logs.filter_log_events(
        logGroupName=group, logStreamNames=["two"], startTime=1767323041000, limit=1
    )
    rest = logs.filter_log_events(
        logGroupName=group, logStreamNames=["two"], nextToken=events["nextToken"]
    )

    assert [each["logStreamName"] for each in streams["logStreams"]] == ["one", "only"]
    assert [each["message"] for each in events["events"]] == ["build two 1"]
    assert [each["message"] for each in rest["events"]] == ["build two 2"]
    assert "nextToken" not in rest
    with pytest.raises(logs.exceptions.ResourceNotFoundException):
        logs.get_log_events(logGroupName=group, logStreamName="none")
    with pytest.raises(logs.exceptions.ResourceNotFoundException):
        logs.describe_log_streams(logGroupName="/aws/other")
    with pytest.raises(logs.exceptions.InvalidParameterException):
        logs.get_log_events(logGroupName=group, logStreamName="two", nextToken="x")


def test_what_sdks_ask_of_other_services_is_answered(server: ApiServer) -> None:
    iam = server.client("iam")

    role = iam.get_role(RoleName="anyone")["Role"]
    simulated = iam.simulate_principal_policy(
        PolicySourceArn=role["Arn"], ActionNames=["ecr:GetAuthorizationToken"]
    )

    assert role["Arn"] == "arn:aws:iam::000000000000:role/anyone"
    assert simulated["EvaluationResults"][0]["EvalDecision"] == "allowed"
    with pytest.raises(ClientError, match="AWS_ENDPOINT_URL_S3"):
        server.client("s3").list_buckets()
    with pytest.raises(ClientError) as refused:
        iam.list_users()
    assert code_of(refused) == "InvalidAction"
