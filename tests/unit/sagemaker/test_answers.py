"""Jobs as the API describes them, checked with botocore's model."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import pytest

from packager.core.record import RecordedBase, RecordedImage, RecordedTree
from packager.jobs.values import Job, JobStatus
from packager.sagemaker.answers import describe, finished_model, job_arn, recommended_image, summary
from packager.sagemaker.optimization import make_job
from packager.sagemaker.settings import JobSettings
from packager.sagemaker.shapes import answer_faults
from tests.support.lineage_records import build_record
from tests.support.sagemaker_bodies import AWQ, EAGLE_OWN_DATA, MODELS, compilation, sharding

SETTINGS = JobSettings(region="eu-west-1", account="111122223333", images="docker:jobs")
DIGEST = f"sha256:{'ab' * 32}"
NOON = datetime(2026, 11, 23, 12, 0, 0, 250_000, tzinfo=UTC)


def _job(body: dict[str, Any] = AWQ, status: JobStatus = "queued", **changed: Any) -> Job:
    asked = make_job(body, SETTINGS, find_model=MODELS.get)
    return Job(
        id="0" * 32,
        asked=asked,
        status=status,
        folder=Path("/jobs/0"),
        created=NOON,
        modified=NOON,
        **changed,
    )


BUILT = RecordedImage(target="docker:jobs:a", name="jobs:a", digest=DIGEST)


def test_a_queued_job_repeats_what_was_asked_for() -> None:
    assert describe(_job(), SETTINGS) == {
        **AWQ,
        "OptimizationJobArn": "arn:aws:sagemaker:eu-west-1:111122223333:optimization-job/"
        "modelbuilderjob-3f2a",
        "OptimizationJobStatus": "STARTING",
        "CreationTime": 1795435200.25,
        "LastModifiedTime": 1795435200.25,
        "OptimizationOutput": {},
    }


def test_a_complete_job_names_the_image_by_its_digest() -> None:
    done = _job(status="completed", started=NOON, ended=NOON)
    answer = describe(done, SETTINGS, build_record(images=(BUILT,)))

    assert answer["OptimizationOutput"] == {"RecommendedInferenceImage": f"jobs:a@{DIGEST}"}
    assert answer["OptimizationEndTime"] == 1795435200.25


def test_of_files_alone_the_base_is_recommended() -> None:
    assert recommended_image(build_record()) == f"host/base:1@{DIGEST}"


def test_of_a_tree_without_a_base_the_image_that_serves_it_is_recommended() -> None:
    tree = RecordedTree(
        target="s3://b/m", name="s3://b/m", digest=DIGEST, files=1, size=1, image="host/lmi:0.36"
    )
    scratch = RecordedBase(reference="scratch", digest="", platform="linux/amd64")
    record = build_record().model_copy(update={"base": scratch, "trees": (tree,)})

    assert recommended_image(record) == "host/lmi:0.36"


def test_no_image_is_recommended_before_the_end() -> None:
    assert (
        describe(_job(status="running"), SETTINGS, build_record(images=(BUILT,)))[
            "OptimizationOutput"
        ]
        == {}
    )


def test_every_state_has_the_name_of_the_service() -> None:
    told = {one: describe(_job(status=one), SETTINGS) for one in get_args(JobStatus)}

    assert {one: answer["OptimizationJobStatus"] for one, answer in told.items()} == {
        "queued": "STARTING",
        "running": "INPROGRESS",
        "stopping": "STOPPING",
        "completed": "COMPLETED",
        "failed": "FAILED",
        "stopped": "STOPPED",
    }


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

    answer = describe(job, SETTINGS, build_record(images=(BUILT,)))
    assert answer_faults("DescribeOptimizationJob", answer) == ()
    assert answer_faults("ListOptimizationJobs", listed) == ()
    created = {"OptimizationJobArn": job_arn(job.name, SETTINGS)}
    assert answer_faults("CreateOptimizationJob", created) == ()


def test_a_list_names_techniques_as_its_filter_does() -> None:
    both = [*AWQ["OptimizationConfigs"], *EAGLE_OWN_DATA["OptimizationConfigs"]]

    assert summary(_job({**AWQ, "OptimizationConfigs": both}), SETTINGS)["OptimizationTypes"] == [
        "Quantization",
        "SpeculativeDecoding",
    ]


def test_an_image_with_a_long_name_is_told_by_its_digest() -> None:
    long = BUILT.model_copy(update={"name": "x" * 250})

    assert recommended_image(build_record(images=(long,))) == DIGEST


def test_a_job_without_a_start_has_no_times_of_one() -> None:
    answer = describe(replace(_job(), started=None), SETTINGS)

    assert not answer.keys() & {"OptimizationStartTime", "OptimizationEndTime"}


MADE = {"ModelName": "made", "ExecutionRoleArn": "arn", "PrimaryContainer": {"ModelDataSource": {}}}


def test_a_model_of_files_alone_is_told_how_to_serve_them() -> None:
    tree = RecordedTree(
        target="s3://b/m",
        name="s3://b/m",
        digest=DIGEST,
        files=1,
        size=1,
        image="host/lmi:0.36",
        env={"OPTION_DTYPE": "bf16"},
    )
    record = build_record(trees=(tree,))

    assert finished_model(MADE, record) == {
        **MADE,
        "PrimaryContainer": {
            "ModelDataSource": {},
            "Image": "host/lmi:0.36",
            "Environment": {"OPTION_DTYPE": "bf16"},
        },
    }


def test_a_model_of_an_image_of_ours_needs_no_settings() -> None:
    made = finished_model({**MADE, "PrimaryContainer": {}}, build_record(images=(BUILT,)))

    assert made["PrimaryContainer"] == {"Image": f"jobs:a@{DIGEST}"}
