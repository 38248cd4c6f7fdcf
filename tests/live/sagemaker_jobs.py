"""Let SageMaker's own SDK benchmark an endpoint, and ask for recommendations.

Run with the SDK on the path, an endpoint's name, a model's and a results' place in a bucket as
arguments.  Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import boto3
import sagemaker_modules  # noqa: F401
import short_pauses
from sagemaker.core.helper.session_helper import Session
from sagemaker.serve.ai_inference_recommender import _model_builder_methods as methods
from sagemaker.serve.ai_inference_recommender import listing
from sagemaker.serve.ai_inference_recommender.exceptions import WorkloadValidationError
from sagemaker.serve.ai_inference_recommender.workload import Workload

ROLE = "arn:aws:iam::111122223333:role/SageMaker"


def main(endpoint: str, model: str, place: str) -> None:
    """Print what both kinds of jobs came to."""
    short_pauses.shorten()
    session = Session(boto_session=boto3.session.Session(), default_bucket="unused")
    workload = Workload.synthetic(
        tokenizer="org/tiny",
        concurrency=2,
        request_count=8,
        prompt_input_tokens_mean=40,
        output_tokens_mean=6,
    )
    common = {"output_path": place, "sagemaker_session": session, "role": ROLE}
    job = methods.start_benchmark(endpoint, workload, name="sdk-bench", **common)
    result = job.show_result()
    refused = ""
    try:
        methods.start_benchmark(endpoint, tokenizer="org/tiny", warmup_colour="red", **common)
    except WorkloadValidationError as error:
        refused = str(error)
    builder = SimpleNamespace(sagemaker_session=session, role_arn=ROLE, model_path=model)
    found = methods.run_recommendation_job(
        builder,
        workload,
        "throughput",
        output_path=place,
        instance_types=["ml.g5.xlarge"],
        framework="VLLM",
        advanced_optimization=False,
        name="sdk-recommend",
    )
    rows = found.show_result()
    best = rows.best
    told = {
        "status": job.ai_benchmark_job_status,
        "endpoint": result.endpoint,
        "tool": result.tool_version,
        "requests": result.metrics.get("request_count").avg,
        "shown": str(result),
        "refused": refused,
        "listed": [one.get_name() for one in listing.list_benchmarks(endpoint=endpoint)],
        "models": [one.get_name() for one in listing.list_recommendations(model=model)],
        "recommended": found.ai_recommendation_job_status,
        "image": best.deployment_configuration.image_uri,
        "package": best.model_details.model_package_arn,
        "instance": best.deployment_configuration.instance_type,
        "throughput": best.expected_performance.output_token_throughput.avg,
        "latency": best.expected_performance.request_latency.p99,
        "table": str(rows),
    }
    sys.stdout.write("\n" + json.dumps(told) + "\n")


main(*sys.argv[1:])
