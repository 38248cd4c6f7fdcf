"""SageMaker's SDKs and the AWS CLI, unmodified, from a model in a bucket to an answer.

The engine of the images is `tiny_engine.py`; the API, its jobs, the quantizer, the Docker Engine
and moto's buckets are real.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.conftest import OWN_PLACES, SCRIPTS, unavailable
from tests.live.api_server import ROLE, ApiServer, api_process, api_server
from tests.live.tiny_images import TINY_ENGINE
from tests.live.tool_programs import documents_in, printed_by
from tests.live.waiting import wait_until
from tests.support.commandline import TINY, packager_in
from tests.support.doubles.s3 import Bucket, bucket_server
from tests.support.sagemaker_bodies import quantization

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500)]

HERE = Path(__file__).resolve().parent
JUMPSTART = "jumpstart-cache-prod-us-east-1"  # the SDKs read lists of models in it
LISTS = ("models_manifest.json", "proprietary-sdk-manifest.json")
QUANTIZED = "packager-test-api"


def python_of(version: str) -> Path:
    """Return the Python of an SDK's environment."""
    words = [SCRIPTS / "sagemaker-sdks", "path", version]
    found = subprocess.run(words, capture_output=True, text=True)
    if found.returncode != 0:
        unavailable(f"scripts/sagemaker-sdks install {version}")
    return Path(found.stdout.strip(), "bin/python")


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    """The model in a bucket, and an almost empty JumpStart."""
    with bucket_server() as url:
        found = Bucket(url)
        found.upload(TINY, "models/tiny")
        client = boto3.client("s3", endpoint_url=url, region_name="us-east-1",
                              aws_access_key_id="x", aws_secret_access_key="x")  # fmt: skip
        client.create_bucket(Bucket=JUMPSTART)
        row = {"model_id": "m", "version": "1.0.0", "min_version": "2.0.0", "spec_key": "m.json"}
        for name in LISTS:
            client.put_object(Bucket=JUMPSTART, Key=name, Body=json.dumps([row]).encode())
        yield found


@pytest.fixture(scope="module")
def api(
    docker_host: str,
    built: tuple[str, Path],
    quantizing_fast: dict[str, str],
    bucket: Bucket,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ApiServer]:
    """A server whose jobs share one cache: what one client has quantized, the next one has."""
    place = tmp_path_factory.mktemp("api")
    own = {name: str(place / folder) for name, folder in OWN_PLACES.items()}
    settings = {
        **own,
        **quantizing_fast,
        **bucket.environment,
        "XDG_CACHE_HOME": str(built[1]),
        "DOCKER_HOST": docker_host,
    }
    base = ("--instance", "local", "--base", f"docker:{TINY_ENGINE}", "--no-measure")
    options = (*base, "--images", f"docker:{QUANTIZED}")
    before = os.environ.get("DOCKER_HOST")
    os.environ["DOCKER_HOST"] = docker_host
    try:
        with api_server(place, *options, **settings) as server:
            yield server
    finally:
        if before is None:
            del os.environ["DOCKER_HOST"]


def environment(api: ApiServer, bucket: Bucket) -> dict[str, str]:
    """Return what `packager api env` says; nothing else tells the clients that AWS is elsewhere."""
    own = {name: os.environ[name] for name in ("PATH", "HOME")}
    s3 = bucket.environment["AWS_ENDPOINT_URL"]
    return {**own, **api.printed_variables("--s3", s3), "PYTHONNOUSERSITE": "1"}


def wait_until_gone(api: ApiServer, endpoint: str) -> None:
    client = api.client("sagemaker")
    wait_until(lambda: not client.list_endpoints(NameContains=endpoint)["Endpoints"], 60)


@pytest.mark.parametrize(
    ("version", "method", "endpoint"), [("v2", "fp8", "sdk2"), ("v3", "awq", "sdk3")]
)
def test_an_sdk_optimizes_deploys_asks_and_deletes(
    api: ApiServer, bucket: Bucket, version: str, method: str, endpoint: str
) -> None:
    program = f"sagemaker_sdk{version[1:]}.py"

    words = (python_of(version), HERE / program, bucket.name, method)
    told = documents_in(printed_by(*words, env=environment(api, bucket)))[-1]

    assert told["endpoint"] == endpoint
    assert told["answer"]["choices"] == [{"message": {"content": "from a chat"}}]
    assert told["image"].startswith(f"{QUANTIZED}:modelbuilderjob-")
    assert "@sha256:" in told["image"]
    wait_until_gone(api, endpoint)
    assert f"{endpoint}/packager-tree.json" in bucket.names()
    quantized = json.loads(bucket.get(f"{endpoint}/config.json"))["quantization_config"]
    bits = quantized["config_groups"]["group_0"]["weights"]["num_bits"]
    assert bits == {"fp8": 8, "awq": 4}[method]


@pytest.mark.capability("sagemaker")
def test_the_aws_cli_optimizes_deploys_asks_and_deletes(
    api: ApiServer, bucket: Bucket, tmp_path: Path
) -> None:
    program = (python_of("v2"), HERE / "short_pauses.py", "awscli")

    def aws(*words: str) -> Any:
        own = environment(api, bucket)
        return json.loads(printed_by(*program, *words, "--output", "json", env=own) or "{}")

    place = f"{bucket.url}/cli/"
    document = {
        **quantization(OPTION_QUANTIZE="fp8"),
        "OptimizationJobName": "cli",
        "ModelSource": {"S3": {"S3Uri": f"{bucket.url}/models/tiny/"}},
        "OutputConfig": {"S3OutputLocation": place},
    }
    aws("sagemaker", "create-optimization-job", "--cli-input-json", json.dumps(document))
    api.ended("cli")  # starts of the CLI take a second each
    job = aws("sagemaker", "describe-optimization-job", "--optimization-job-name", "cli")
    assert job["OptimizationJobStatus"] == "COMPLETED", job
    data = {"S3Uri": place, "S3DataType": "S3Prefix", "CompressionType": "None"}
    container = {
        "Image": job["OptimizationOutput"]["RecommendedInferenceImage"],
        "ModelDataSource": {"S3DataSource": data},
    }
    aws("sagemaker", "create-model", "--model-name", "cli", "--execution-role-arn", ROLE,
        "--primary-container", json.dumps(container))  # fmt: skip
    variant = "VariantName=a,ModelName=cli,InstanceType=ml.g5.12xlarge,InitialInstanceCount=1"
    aws("sagemaker", "create-endpoint-config", "--endpoint-config-name", "cli",
        "--production-variants", variant)  # fmt: skip
    named = ("--endpoint-name", "cli")
    aws("sagemaker", "create-endpoint", *named, "--endpoint-config-name", "cli")
    aws("sagemaker", "wait", "endpoint-in-service", *named)
    body = {"model": "tiny", "prompt": "Once", "max_tokens": 4}
    answered = tmp_path / "answer.json"

    aws("sagemaker-runtime", "invoke-endpoint", *named, "--body", json.dumps(body),
        "--content-type", "application/json",
        str(answered))  # fmt: skip

    assert "choices" in json.loads(answered.read_text())
    aws("sagemaker", "delete-endpoint", *named)
    aws("sagemaker", "wait", "endpoint-deleted", *named)
    aws("sagemaker", "delete-endpoint-config", "--endpoint-config-name", "cli")
    aws("sagemaker", "delete-model", "--model-name", "cli")
    aws("sagemaker", "delete-optimization-job", "--optimization-job-name", "cli")
    assert aws("sagemaker", "list-models")["Models"] == []


@pytest.mark.extended
def test_a_job_ends_with_the_model_measured_before_and_after(
    docker_host: str,
    built: tuple[str, Path],
    quantizing_fast: dict[str, str],
    bucket: Bucket,
    tmp_path: Path,
) -> None:
    options = ("--instance", "local", "--base", f"docker:{TINY_ENGINE}")
    own = {"DOCKER_HOST": docker_host, "XDG_CACHE_HOME": str(built[1])}
    environment = {**own, **quantizing_fast, **bucket.environment}
    document = {
        **quantization(OPTION_QUANTIZE="fp8"),
        "OptimizationJobName": "measured",
        "ModelSource": {"S3": {"S3Uri": f"{bucket.url}/models/tiny/"}},
        "OutputConfig": {"S3OutputLocation": f"{bucket.url}/measured/"},
    }
    with api_process(tmp_path, *options, **environment) as server:
        server.client("sagemaker").create_optimization_job(**document)
        server.ended("measured")
        log = server.job_log("measured")

    names = {one for one in bucket.names() if one.startswith("measured/results/")}
    states = [f"{state}_conc{n}" for state in ("original", "optimized") for n in (1, 2, 4, 8, 16)]
    files = {f"measured/results/benchmark_{one}.json" for one in states}
    others = {f"measured/results/{one}" for one in ("benchmark_report.html", "quality.json")}
    assert names == files | others, log
    quality = json.loads(bucket.get("measured/results/quality.json"))["quality"]
    assert 0 < quality["kld_mean"] < 0.1
    assert quality["top1_agreement"] > 0.8
    assert "same first choice: " in log
    result = json.loads(bucket.get("measured/results/benchmark_optimized_conc4.json"))
    assert result["completed"] == 48
    assert result["mean_ttft_ms"] > 0
    assert "16 at a time: " in log
    place = f"{bucket.url}/measured/results/benchmark_optimized_conc4.json"
    told = packager_in(tmp_path)("report", place, env=bucket.environment, status=0).out
    assert "optimized" in told


@pytest.mark.extended
def test_both_sdks_take_deployment_configurations_of_mapped_models(
    quantizing_fast: dict[str, str], bucket: Bucket, tmp_path: Path
) -> None:
    bucket.upload(TINY, "models/draft")
    places = {"place": f"{bucket.url}/models/tiny/", "draft": f"{bucket.url}/models/draft/"}
    (tmp_path / "mapped.json").write_text(json.dumps({"meta-tiny": places}))
    options = ("--instance", "local", "--base", "scratch", "--no-measure")
    mapped = ("--jumpstart", str(tmp_path / "mapped.json"))
    environments = {**quantizing_fast, **bucket.environment}
    with api_process(tmp_path, *options, *mapped, **environments) as api:
        for version in ("v2", "v3"):
            program = (python_of(version), HERE / "sagemaker_jumpstart.py")
            words = (bucket.url.removeprefix("s3://"), version)
            told = printed_by(*program, *words, env=environment(api, bucket)).splitlines()[-1]
            job = api.client("sagemaker").describe_optimization_job(
                OptimizationJobName=f"jumpstart-{version}"
            )

            assert json.loads(told)["names"] == ["lmi", "lmi-optimized"]
            assert json.loads(told)["chosen"] == "lmi-optimized"
            assert job["OptimizationJobStatus"] == "COMPLETED"
            uri = job["ModelSource"]["S3"]["S3Uri"]
            assert uri == f"s3://{JUMPSTART}/packager/meta-tiny/"
            assert bucket.get(f"jumpstart-{version}/config.json")
