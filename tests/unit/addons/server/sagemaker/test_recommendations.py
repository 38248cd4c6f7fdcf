"""AI recommendation jobs: documents as tunes, and what was found as recommendations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from packager.addons.deploy.sagemaker.api_refusals import ValidationRefused
from packager.addons.server.sagemaker.jumpstart import JumpStart
from packager.addons.server.sagemaker.recommendations import (
    Tuned,
    describe_recommendation,
    instance_types,
    make_recommendation,
    recommendations,
    summarize_recommendation,
)
from packager.addons.server.sagemaker.settings import JobSettings
from packager.addons.server.sagemaker.workloads import WorkloadConfig, read_workload_config
from packager.core.bench import (
    BenchLoad,
    BenchReport,
    BenchVariant,
    BenchWorkload,
    Limits,
    Metric,
    Prices,
)
from packager.core.tuning import TunedCandidate, TuneReport
from packager.estimate.performance.presets import Goal
from tests.support.ai_jobs import SYNTHETIC, faults_of, recommendation_body, stored, workload_body
from tests.support.cases import cases, read_tables

SETTINGS = JobSettings(region="eu-west-1", account="111122223333")
G5, G6 = "ml.g5.xlarge", "ml.g6.xlarge"


def a_workload(**parameters: Any) -> WorkloadConfig:
    spec = {**SYNTHETIC, "parameters": {**SYNTHETIC["parameters"], **parameters}}
    return read_workload_config(workload_body(spec))


def test_a_model_of_jumpstart_is_tuned_at_the_mapped_place() -> None:
    mapped = JumpStart(places={"meta-tiny": "s3://models/tiny/"})
    uri = "s3://jumpstart-cache-prod-eu-west-1/packager/meta-tiny/"
    body = {**recommendation_body("throughput"), "ModelSource": {"S3": {"S3Uri": uri}}}

    job = make_recommendation(body, a_workload(), replace(SETTINGS, jumpstart=mapped))

    for stage in job.stages:
        assert stage.arguments[stage.arguments.index("--model") + 1] == "s3://models/tiny/"


@cases("tunes")
def test_a_job_is_one_tune_for_each_instance_type(case: dict[str, Any]) -> None:
    body = recommendation_body(case.get("metric", "throughput"), **case.get("body", {}))
    settings = replace(SETTINGS, **case.get("settings", {}))

    job = make_recommendation(body, a_workload(), settings)

    tunes = [" ".join(stage.arguments) for stage in job.stages]
    assert len(tunes) == len(case["says"])
    for tune, texts in zip(tunes, case["says"], strict=True):
        assert [text for text in texts if text not in tune] == []
        assert [text for text in case.get("says_not", ()) if text in tune] == []
    assert list(instance_types(job)) == case.get("types", list(instance_types(job)))


@cases("the_image_is_one_that_can_be_started")
def test_the_image_is_one_that_can_be_started(images: tuple[str, ...], shown: str) -> None:
    report = a_report({"a": 100.0}).model_copy(update={"images": images})

    (found,) = recommendations([Tuned("", report)], "rec-1", SETTINGS)

    assert found["DeploymentConfiguration"]["ImageUri"] == shown


@cases("refused")
def test_what_is_not_done_here_is_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationRefused, match=message):
        make_recommendation(recommendation_body(**more), a_workload(), SETTINGS)


def test_results_at_a_place_that_is_no_text_are_refused() -> None:
    body = recommendation_body(OutputConfig={"S3OutputLocation": "s3://bucket/\ud800"})

    with pytest.raises(ValidationRefused, match="is not a place"):
        make_recommendation(body, a_workload(), SETTINGS)


def test_a_workload_of_a_rate_is_refused() -> None:
    workload = a_workload(request_rate=2)

    with pytest.raises(ValidationRefused, match="the workload has request_rate"):
        make_recommendation(recommendation_body(), workload, SETTINGS)


def a_load(tokens_s: float, usd: float | None = None) -> BenchLoad:
    stated = BenchLoad.model_validate(read_tables(__file__)["load"])
    metrics = {
        "request_throughput": Metric(unit="requests/sec", avg=tokens_s / 100),
        "output_token_throughput": Metric(unit="tokens/sec", avg=tokens_s),
        **stated.metrics,
    }
    prices = Prices(usd_hour=1.0, output=usd) if usd else None
    return stated.model_copy(update={"metrics": metrics, "prices": prices})


def a_report(
    speeds: dict[str, float],
    *,
    goal: Goal = "throughput",
    usd: float | None = None,
    keeps_limits: bool = True,
    **request: Any,
) -> TuneReport:
    """Make a report of candidates by tokens/s; the first is the best."""
    best = next(iter(speeds), None)
    return TuneReport(
        packager_version="1.2.3",
        model="s3://bucket/models/tiny/",
        instance="ml.g5.xlarge",
        goal=goal,
        unit="output tokens/s",
        concurrency=(8,),
        started="2026-11-23T10:00:00Z",
        journal="journal.jsonl",
        ended="finished" if best else "all-failed",
        best=best,
        keeps_limits=keeps_limits,
        measurements=4,
        exhaustive=6,
        seconds=60.0,
        candidates=tuple(
            TunedCandidate(
                id=name,
                name=name,
                state="best" if name == best else "worse",
                rounds=2,
                score=score,
                image=f"packager-tune:{name}",
                digest="sha256:01",
            )
            for name, score in speeds.items()
        ),
        request={"model": "m", "instance": "i", **request},
        images=("packager-tune:best@sha256:01",) if best else (),
        bench=BenchReport(
            packager_version="1.2.3",
            measured="2026-11-23T10:00:00Z",
            workload=BenchWorkload(name="64:32"),
            limits=Limits(),
            variants=tuple(
                BenchVariant(name=name, loads=(a_load(score, usd),))
                for name, score in speeds.items()
            ),
        ),
    )


DRAFTED = a_report(
    {"--quantize awq --draft ngram": 300.0, "as requested": 200.0},
    quantize="awq",
    draft="ngram",
    speculative_tokens=4,
    engine_options={"max-num-seqs": "16"},
)


def test_the_best_candidate_is_a_recommendation_with_what_was_measured() -> None:
    (found,) = recommendations([Tuned("ml.g5.xlarge", DRAFTED, 2)], "rec-1", SETTINGS)

    assert found == read_tables(__file__)["best"]


@cases("best_first")
def test_the_best_instance_comes_first(measured: list[dict[str, Any]], order: str) -> None:
    reports = [a_report({one["name"]: one["speed"]}, **one.get("more", {})) for one in measured]

    found = recommendations((Tuned("", report) for report in reports), "rec-1", SETTINGS)

    assert "".join(one["RecommendationDescription"][0] for one in found) == order


def test_an_answer_has_amazons_shape() -> None:
    body = recommendation_body(
        OptimizeModel=True,
        InferenceSpecification={"Framework": "LMI"},
        ComputeSpec={"InstanceTypes": [G5]},
    )
    job = stored(make_recommendation(body, a_workload(), SETTINGS), "completed")

    answer = describe_recommendation(job, SETTINGS, [Tuned(G5, DRAFTED)])

    assert faults_of("DescribeAIRecommendationJob", answer) == ""
    assert answer["AIRecommendationJobStatus"] == "Completed"
    assert answer["OutputConfig"] == {"S3OutputLocation": "s3://bucket/recommendations/rec-1/"}
    assert answer["ComputeSpec"] == {"InstanceTypes": ["ml.g5.xlarge"]}
    assert len(answer["Recommendations"]) == 1
    summary = summarize_recommendation(job, SETTINGS)
    assert faults_of("ListAIRecommendationJobs", {"AIRecommendationJobs": [summary]}) == ""


def test_nothing_is_recommended_where_nothing_was_measured() -> None:
    job = stored(make_recommendation(recommendation_body(), a_workload(), SETTINGS), "running")

    assert "Recommendations" not in describe_recommendation(job, SETTINGS)
    assert recommendations([Tuned("", a_report({}))], "rec-1", SETTINGS) == []


def test_bodies_of_these_tests_are_amazons() -> None:
    assert faults_of("CreateAIRecommendationJob", recommendation_body(), way="input") == ""
