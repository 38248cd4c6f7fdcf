"""Jobs as the API describes them, checked with botocore's model."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import pytest

from packager.addons.deploy.sagemaker.shapes import answer_faults
from packager.addons.server.jobs.values import BackgroundJob, JobStatus
from packager.addons.server.sagemaker.answers import (
    describe,
    finished_model,
    job_arn,
    recommended_image,
    summary,
)
from packager.addons.server.sagemaker.optimization import make_job
from packager.addons.server.sagemaker.settings import JobSettings
from packager.core.record import BuildRecord, RecordedBase, RecordedImage, RecordedTree
from tests.support.cases import cases, read_tables
from tests.support.lineage_records import build_record
from tests.support.sagemaker_bodies import AWQ, EAGLE_OWN_DATA, MODELS, compilation, sharding

SETTINGS = JobSettings(region="eu-west-1", account="111122223333", images="docker:jobs")
DIGEST = f"sha256:{'ab' * 32}"
NOON = datetime(2026, 11, 23, 12, 0, 0, 250_000, tzinfo=UTC)


def _job(body: dict[str, Any] = AWQ, status: JobStatus = "queued", **changed: Any) -> BackgroundJob:
    asked = make_job(body, SETTINGS, find_model=MODELS.get)
    return BackgroundJob(
        id="0" * 32,
        asked=asked,
        status=status,
        folder=Path("/jobs/0"),
        created=NOON,
        modified=NOON,
        **changed,
    )


BUILT = RecordedImage(target="docker:jobs:a", name="jobs:a", digest=DIGEST)


def record_of(row: dict[str, Any]) -> BuildRecord:
    """Return a build of images of these names and of trees, upon a base."""
    images = (
        RecordedImage(target=f"docker:{one}", name=one, digest=DIGEST) for one in row["images"]
    )
    trees = (
        RecordedTree(target="s3://b/m", name="s3://b/m", digest=DIGEST, files=1, size=1, **one)
        for one in row.get("trees", ())
    )
    record = build_record(images=tuple(images), trees=tuple(trees))
    if row.get("from_scratch"):
        base = RecordedBase(reference="scratch", digest="", platform="linux/amd64")
        record = record.model_copy(update={"base": base})
    return record


@cases("results")
def test_a_result_names_its_image_and_how_to_serve_it(case: dict[str, Any]) -> None:
    record, digest = record_of(case["record"]), DIGEST
    made = {"ModelName": "made", "ExecutionRoleArn": "arn", "PrimaryContainer": case["container"]}

    assert recommended_image(record) == case["image"].replace("{digest}", digest)
    assert finished_model(made, record)["PrimaryContainer"] == {
        **case["container"],
        **case["serves"],
        "Image": case["serves"]["Image"].replace("{digest}", digest),
    }


@cases("statuses")
def test_every_state_has_the_name_of_the_service(status: JobStatus, told: str) -> None:
    assert status in get_args(JobStatus)
    assert describe(_job(status=status), SETTINGS)["OptimizationJobStatus"] == told


def test_a_queued_job_repeats_what_was_asked_for() -> None:
    assert describe(_job(), SETTINGS) == {**AWQ, **read_tables(__file__)["queued"]}


def test_a_complete_job_has_its_end_and_its_image_and_a_running_one_neither() -> None:
    done = describe(_job(status="completed", started=NOON, ended=NOON), SETTINGS, RECORD)
    running = describe(_job(status="running"), SETTINGS, RECORD)

    assert done["OptimizationOutput"] == {"RecommendedInferenceImage": f"jobs:a@{DIGEST}"}
    assert done["OptimizationEndTime"] == 1795435200.25
    assert running["OptimizationOutput"] == {}
    assert not running.keys() & {"OptimizationStartTime", "OptimizationEndTime"}


RECORD = build_record(images=(BUILT,))


def test_a_reason_is_shortened_and_printable() -> None:
    reason = describe(_job(status="failed", failure="\x1b" + "é" * 3000), SETTINGS)["FailureReason"]

    assert len(reason) == 1024
    assert "\x1b" not in reason


@pytest.mark.parametrize(
    "body",
    [AWQ, EAGLE_OWN_DATA, compilation(), sharding(OPTION_TENSOR_PARALLEL_DEGREE="4")],
    ids=["quantize", "eagle", "compile", "shard"],
)
@pytest.mark.parametrize("status", get_args(JobStatus))
def test_botocore_finds_no_fault_in_an_answer(body: dict[str, Any], status: JobStatus) -> None:
    job = _job(body, status, started=NOON, ended=NOON, failure="why")
    listed = {"OptimizationJobSummaries": [summary(job, SETTINGS)]}

    answer = describe(job, SETTINGS, RECORD)
    assert answer_faults("DescribeOptimizationJob", answer) == ()
    assert answer_faults("ListOptimizationJobs", listed) == ()
    created = {"OptimizationJobArn": job_arn(job.name, SETTINGS)}
    assert answer_faults("CreateOptimizationJob", created) == ()
