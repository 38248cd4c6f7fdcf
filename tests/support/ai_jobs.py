"""Bodies and stored jobs of the API's benchmarks and recommendations, as clients send them."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import botocore.session
from botocore.validate import ParamValidator

from packager.addons.server.jobs.values import BackgroundJob, JobStatus, NewJob
from tests.support.sagemaker_bodies import STATED

CREATED = datetime(2026, 11, 23, 10, 0, 0, 123456, tzinfo=UTC)

SYNTHETIC = STATED["synthetic"]


def workload_body(
    spec: object = SYNTHETIC, *, name: str = "chat", channels: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return a body of CreateAIWorkloadConfig, with a data set in each of these places."""
    data = [
        {"ChannelName": f"data-{number}", "DataSource": {"S3DataSource": {"S3Uri": place}}}
        for number, place in enumerate(channels)
    ]
    text = spec if isinstance(spec, str) else json.dumps(spec)
    return {
        "AIWorkloadConfigName": name,
        "AIWorkloadConfigs": {"WorkloadSpec": {"Inline": text}},
        **({"DatasetConfig": {"InputDataConfig": data}} if data else {}),
    }


def benchmark_body(**more: Any) -> dict[str, Any]:
    """Return a body of CreateAIBenchmarkJob."""
    return deepcopy(STATED["benchmark"]) | more


def recommendation_body(metric: str = "throughput", **more: Any) -> dict[str, Any]:
    """Return a body of CreateAIRecommendationJob."""
    target = {"Constraints": [{"Metric": metric}]}
    return deepcopy(STATED["recommendation"]) | {"PerformanceTarget": target} | more


def stored(new: NewJob, status: JobStatus = "queued", **more: Any) -> BackgroundJob:
    """Return a job as a store has it."""
    return BackgroundJob(
        id="0" * 32,
        asked=replace(new, files={}),
        status=status,
        folder=Path("/jobs/0"),
        created=CREATED,
        modified=CREATED,
        **more,
    )


def faults_of(operation: str, answer: dict[str, Any], *, way: str = "output") -> str:
    """Return what botocore's own shape of an operation finds wrong with a body or an answer."""
    found = botocore.session.get_session().get_service_model("sagemaker").operation_model(operation)
    shape = found.output_shape if way == "output" else found.input_shape
    unknown = set(answer) - set(shape.members)
    assert not unknown, unknown
    report: str = ParamValidator().validate(answer, shape).generate_report()
    return report
