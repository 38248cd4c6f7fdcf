"""SageMaker's SDK 3, unchanged, against `packager serve`: benchmarks and recommendations.

The engine of the endpoint is `tiny_engine.py`; everything else is real: the server, its jobs, the
Docker Engine, moto's bucket.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.live.api_server import ROLE, ApiServer, api_server
from tests.live.tiny_images import TINY_ENGINE
from tests.live.tool_programs import documents_in, printed_by
from tests.support.doubles.s3 import Bucket

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500)]

HERE = Path(__file__).resolve().parent
ASKED = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}


def test_sagemakers_sdk_benchmarks_an_endpoint_and_takes_recommendations(
    image: str, consumers: Path, bucket: Bucket, tmp_path: Path
) -> None:
    state = os.environ["XDG_STATE_HOME"]  # where the record of the image is
    own = {**bucket.environment, "HOME": str(tmp_path), "XDG_STATE_HOME": state}
    base = ("--instance", "local", "--base", f"docker:{TINY_ENGINE}")
    with api_server(tmp_path, *base, **own) as api:
        client = api.client("sagemaker")
        deploy(api, "tiny", {"Image": image})
        words = ("tiny", f"{bucket.url}/models/tiny", f"{bucket.url}/results/")
        printed = printed_by(
            *(sys.executable, HERE / "sagemaker_jobs.py", *words),
            **own,
            PYTHONPATH=str(consumers / "sagemaker"),
            AWS_ENDPOINT_URL_SAGEMAKER=api.url,
        )
        told = documents_in(printed)[-1]
        described = client.describe_model_package(ModelPackageName=told["package"])
        deploy(api, "best", {"ModelPackageName": told["package"]})
        answer = api.ask("best", ASKED)
        api.take_down("best")
        api.take_down("tiny")

    assert (told["status"], told["endpoint"], told["requests"]) == ("Completed", "tiny", 8)
    assert told["tool"].startswith("packager ")
    assert "output_token_throughput" in told["shown"]
    assert "'warmup_colour' is not a parameter of a workload" in told["refused"]
    assert told["listed"] == ["sdk-bench"]
    assert (told["recommended"], told["models"]) == ("Completed", ["sdk-recommend"])
    assert told["image"].startswith("packager-tune:")
    assert told["instance"] == "ml.g5.xlarge"
    assert described["ModelApprovalStatus"] == "Approved"
    assert answer["choices"][0]["message"] == {"content": "from a chat"}
    assert told["throughput"] > 0 and told["latency"] > 0
    assert "ml.g5.xlarge" in told["table"]
    assert any(key.startswith("results/sdk-bench/") for key in bucket.names())


def deploy(api: ApiServer, name: str, container: dict[str, str]) -> None:
    """Bring a model up behind an endpoint of its name."""
    client = api.client("sagemaker")
    client.create_model(ModelName=name, PrimaryContainer=container, ExecutionRoleArn=ROLE)
    api.bring_up(name)
