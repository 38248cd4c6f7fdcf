"""An adapter component on a real vLLM, by boto3, through a crash of its container."""

from __future__ import annotations

import io
import json
import tarfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.conftest import OWN_PLACES
from tests.live.api_server import ApiServer, api_server
from tests.live.building import build
from tests.live.processors import caps
from tests.live.servers import SMALL_MODEL
from tests.live.waiting import wait_until
from tests.support.adapters import read_adapter, write_adapter
from tests.support.commandline import TINY, packager_in
from tests.support.doubles.s3 import Bucket, bucket_server
from tests.support.serve_services import ROLE
from tests.support.tiny_forward import log_odds, weights_of

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500)]

IMAGE, PROMPT = "packager-test:runtime-adapters", "def loads("


def test_an_adapter_answers_by_its_components_name_and_again_after_a_crash(
    docker_host: str, engine: str, serving_base: str, tmp_path: Path
) -> None:
    import docker

    adapter = write_adapter(tmp_path / "sql", r=8, lora_alpha=16, seed=1, size=4.0)
    own = {variable: str(tmp_path / folder) for variable, folder in OWN_PLACES.items()}
    words = (f"docker:{IMAGE}", "--allow-runtime-adapters")
    environment = {"DOCKER_HOST": docker_host, **own}
    build(packager_in(tmp_path), *words, base=serving_base, env=environment)
    with bucket_server() as url:
        bucket = Bucket(url)
        bucket.put("sql.tar.gz", archive(adapter))
        with api_server(tmp_path, **bucket.environment) as api:
            serve(api, f"{bucket.url}/sql.tar.gz")
            ids, meant = expected(read_adapter(adapter))
            base, sql = (first(api, name, ids) for name in ("base", "sql"))
            assert sql[1] == pytest.approx(meant[sql[0]], abs=0.15)
            assert meant[sql[0]] > meant.max() - 0.1
            assert base != sql

            (container,) = docker.from_env().containers.list(filters={"ancestor": IMAGE})
            container.kill()
            wait_until(lambda: answers(api, ids) == sql, 300)
            api.client("sagemaker").delete_inference_component(InferenceComponentName="sql")
            with pytest.raises(ClientError, match=r"was not found|does not exist"):
                wait_until(lambda: first(api, "sql", ids) is None, 60)


def archive(adapter: Path) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for file in sorted(adapter.iterdir()):
            tar.add(file, file.name)
    return data.getvalue()


def serve(api: ApiServer, uri: str) -> None:
    """Make the endpoint, its component, and the adapter on that."""
    client = api.client("sagemaker")
    variant = {"VariantName": "AllTraffic", "InstanceType": "ml.c7i.xlarge"}
    client.create_endpoint_config(
        EndpointConfigName="c",
        ExecutionRoleArn=ROLE,
        ProductionVariants=[{**variant, "InitialInstanceCount": 1}],
    )
    client.create_endpoint(EndpointName="e", EndpointConfigName="c")
    container = {"Image": IMAGE, "Environment": {**SMALL_MODEL, **caps()}}
    needs = {"NumberOfCpuCoresRequired": 1, "MinMemoryRequiredInMb": 1024}
    specifications: dict[str, dict[str, Any]] = {
        "base": {"Container": container, "ComputeResourceRequirements": needs},
        "sql": {"BaseInferenceComponentName": "base", "Container": {"ArtifactUrl": uri}},
    }
    client.get_waiter("endpoint_in_service").wait(EndpointName="e", WaiterConfig={"Delay": 1})
    for name, specification in specifications.items():
        client.create_inference_component(
            InferenceComponentName=name,
            EndpointName="e",
            VariantName="AllTraffic",
            Specification=specification,
        )
        wait_until(partial(has_settled, api, name), 600)
        assert state(api, name)["InferenceComponentStatus"] == "InService", state(api, name)


def has_settled(api: ApiServer, name: str) -> bool:
    return bool(state(api, name)["InferenceComponentStatus"] != "Creating")


def state(api: ApiServer, name: str) -> dict[str, Any]:
    found = api.client("sagemaker").describe_inference_component(InferenceComponentName=name)
    return dict(found)


def expected(adapter: Any) -> tuple[list[int], Any]:
    """Return the prompt's tokens, and the odds of the next one by plain arithmetic."""
    from tokenizers import Tokenizer

    ids = Tokenizer.from_file(str(TINY / "tokenizer.json")).encode(PROMPT).ids
    config = json.loads((TINY / "config.json").read_text())
    return ids, log_odds(weights_of(TINY, adapter), config, ids)


def first(api: ApiServer, component: str, ids: list[int]) -> tuple[int, float]:
    """Return the first token of a component's answer, and its odds."""
    body = {"prompt": ids, "max_tokens": 1, "temperature": 0, "logprobs": 1}
    answer = api.client("sagemaker-runtime").invoke_endpoint(
        EndpointName="e",
        InferenceComponentName=component,
        ContentType="application/json",
        Body=json.dumps({**body, "return_token_ids": True}).encode(),
    )
    choice = json.loads(answer["Body"].read())["choices"][0]
    return choice["token_ids"][0], choice["logprobs"]["token_logprobs"][0]


def answers(api: ApiServer, ids: list[int]) -> tuple[int, float] | None:
    try:
        return first(api, "sql", ids)
    except ClientError:
        return None
