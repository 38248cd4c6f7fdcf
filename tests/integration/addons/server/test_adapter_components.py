"""Adapter inference components through boto3, unmodified: loaded, named, updated, loaded again."""

from __future__ import annotations

import io
import json
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from packager.addons.deploy.sagemaker.adapters import read_adapters
from packager.addons.deploy.sagemaker.bodies import requests_of
from packager.addons.deploy.sagemaker.live import LiveSageMaker
from packager.addons.deploy.sagemaker.spec import SageMakerSpec
from packager.addons.server.endpoints.adapters import IN_CONTAINER
from packager.core.errors import UsageError
from tests.support.adapters import write_adapter
from tests.support.buckets import bucket as bucket
from tests.support.buckets import server as server
from tests.support.deployments import ROLE, deployment
from tests.support.doubles.endpoint_containers import FakeContainers
from tests.support.doubles.s3 import Bucket
from tests.support.hosting_server import Server, hosting, look_often, use_for_aws

HEADER = "X-Amzn-SageMaker-Adapter-Identifier"


class Aws:
    """AWS's two clients, and what notebooks do with them."""

    def __init__(self, hosted: Server, bucket: Bucket, place: Path) -> None:
        own = {
            "endpoint_url": hosted.url,
            "region_name": "us-east-1",
            "config": Config(retries={"total_max_attempts": 1}),
        }
        self.sagemaker = boto3.client("sagemaker", **own)
        self.runtime = boto3.client("sagemaker-runtime", **own)
        self.bucket, self.place = bucket, place

    def endpoint(self) -> None:
        """Make the endpoint `e` that takes components."""
        variant = {"VariantName": "AllTraffic", "InstanceType": "ml.g6.12xlarge"}
        self.sagemaker.create_endpoint_config(
            EndpointConfigName="c",
            ExecutionRoleArn=ROLE,
            ProductionVariants=[{**variant, "InitialInstanceCount": 1}],
        )
        self.sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c")
        self.sagemaker.get_waiter("endpoint_in_service").wait(
            EndpointName="e", WaiterConfig={"Delay": 1}
        )

    def base(self, name: str = "base", **environment: str) -> None:
        """Make the component whose containers load adapters."""
        container = {"Image": "tiny:1", "Environment": {"NAME": name, **environment}}
        self.component(name, Container=container, ComputeResourceRequirements=NEEDS)

    def adapter(self, name: str, uri: str, base: str = "base") -> dict[str, Any]:
        """Make an adapter component; return what describes it at last."""
        self.sagemaker.create_inference_component(
            InferenceComponentName=name,
            EndpointName="e",
            Specification={
                "BaseInferenceComponentName": base,
                "Container": {"ArtifactUrl": uri},
            },
        )
        return self.settled(name)

    def component(self, name: str, **specification: Any) -> None:
        self.sagemaker.create_inference_component(
            InferenceComponentName=name,
            EndpointName="e",
            VariantName="AllTraffic",
            Specification=specification,
            RuntimeConfig={"CopyCount": 2},
        )
        assert self.settled(name)["InferenceComponentStatus"] == "InService"

    def settled(self, name: str) -> dict[str, Any]:
        end = time.monotonic() + 30
        while time.monotonic() < end:
            found = self.sagemaker.describe_inference_component(InferenceComponentName=name)
            if found["InferenceComponentStatus"] not in ("Creating", "Updating"):
                return dict(found)
            time.sleep(0.02)
        raise AssertionError(f"{name} is still under way")

    def archive(self, name: str, folder: str = "", files: Mapping[str, bytes] | None = None) -> str:
        """Put an adapter into the bucket as AWS wants it; return its address."""
        made = write_adapter(self.place / name)
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w:gz") as tar:
            for file in sorted(made.iterdir()):
                tar.add(file, f"{folder}{file.name}")
            for path, content in (files or {}).items():
                member = tarfile.TarInfo(f"{folder}{path}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        self.bucket.put(f"{name}.tar.gz", data.getvalue())
        return f"{self.bucket.url}/{name}.tar.gz"

    def invoke(self, component: str) -> dict[str, str]:
        """Return the headers that a container gets with a request for a component."""
        answer = self.runtime.invoke_endpoint(
            EndpointName="e", InferenceComponentName=component, Body=b'{"inputs": "hi"}'
        )
        seen = json.loads(answer["Body"].read())
        return {name.title(): value for name, value in seen["headers"].items()}


NEEDS = {"MinMemoryRequiredInMb": 128}


@pytest.fixture
def containers() -> FakeContainers:
    return FakeContainers()


@pytest.fixture
def hosted(
    tmp_path: Path, containers: FakeContainers, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Server]:
    look_often(monkeypatch)
    with hosting(tmp_path / "state", containers) as found:
        use_for_aws(monkeypatch, found)
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", bucket.environment["AWS_ENDPOINT_URL"])
        yield found


@pytest.fixture
def aws(hosted: Server, bucket: Bucket, tmp_path: Path) -> Aws:
    found = Aws(hosted, bucket, tmp_path)
    found.endpoint()
    found.base(ADAPTERS="1")
    return found


def test_an_adapter_is_loaded_by_every_copy_and_named_in_requests(
    aws: Aws, containers: FakeContainers
) -> None:
    found = aws.adapter("sql", aws.archive("sql"))

    assert found["InferenceComponentStatus"] == "InService"
    assert found["Specification"]["BaseInferenceComponentName"] == "base"
    for model in containers.servers.values():
        (src,) = model.adapters.values()
        assert src.startswith(f"{IN_CONTAINER}/sql.")
    assert aws.invoke("sql")[HEADER.title()] == "sql"
    assert HEADER.title() not in aws.invoke("base")
    for owner, folders in containers.folders.items():
        assert owner.startswith("component/base/")
        files = {path.name for path in folders[IN_CONTAINER].rglob("*") if path.is_file()}
        assert files == {"adapter_config.json", "adapter_model.safetensors"}


def test_a_copy_that_starts_anew_loads_it_again(aws: Aws, containers: FakeContainers) -> None:
    aws.adapter("sql", aws.archive("sql"))
    number, model = next(iter(containers.servers.items()))
    model.adapters.clear()
    containers.die(number)
    wait_until(lambda: any(one.startswith("again ") for one in containers.started))
    containers.rise(number)

    wait_until(lambda: "sql" in model.adapters)
    aws.sagemaker.update_inference_component_runtime_config(
        InferenceComponentName="base", DesiredRuntimeConfig={"CopyCount": 3}
    )
    aws.settled("base")
    assert [len(one.adapters) for one in containers.servers.values()] == [1, 1, 1]


def test_a_server_that_starts_again_has_all_of_them(
    aws: Aws, containers: FakeContainers, hosted: Server, bucket: Bucket, tmp_path: Path
) -> None:
    aws.adapter("sql", aws.archive("sql"))
    for model in containers.servers.values():
        model.adapters = {"sql": "/elsewhere"}

    again = Server(tmp_path / "state", containers)
    try:
        again.call(again.services.endpoints.start())
        wait_until(lambda: all(_is_loaded(one.adapters) for one in containers.servers.values()))
        other = Aws(again, bucket, tmp_path / "other")
        assert other.settled("sql")["InferenceComponentStatus"] == "InService"
        wait_until(lambda: _is_answering(other))  # asked to load, and not yet noted as loaded
        again.call(again.services.endpoints.close())
    finally:
        again.stop()


def _is_loaded(adapters: Mapping[str, str]) -> bool:
    return adapters["sql"].startswith(f"{IN_CONTAINER}/sql.")


def _is_answering(aws: Aws) -> bool:
    try:
        return bool(aws.invoke("sql")[HEADER.title()] == "sql")
    except ClientError:
        return False


def test_an_update_replaces_its_files_and_a_deletion_unloads_it(
    aws: Aws, containers: FakeContainers
) -> None:
    aws.adapter("sql", aws.archive("sql"))
    aws.adapter("law", aws.archive("law", folder="law/"))
    before = {model.adapters["sql"] for model in containers.servers.values()}

    aws.sagemaker.update_inference_component(
        InferenceComponentName="sql",
        Specification={"Container": {"ArtifactUrl": aws.archive("newer")}},
    )
    assert aws.settled("sql")["InferenceComponentStatus"] == "InService"
    after = {model.adapters["sql"] for model in containers.servers.values()}
    assert len(before) == len(after) == 1
    assert before != after
    with pytest.raises(ClientError, match="it is the base of the adapter"):
        aws.sagemaker.delete_inference_component(InferenceComponentName="base")

    aws.sagemaker.delete_inference_component(InferenceComponentName="sql")
    wait_until(lambda: all(set(one.adapters) == {"law"} for one in containers.servers.values()))
    (place,) = {folders[IN_CONTAINER] for folders in containers.folders.values()}
    wait_until(lambda: [one.name.partition(".")[0] for one in place.iterdir()] == ["law"])

    def is_gone() -> bool:  # the component goes after its files
        with pytest.raises(ClientError) as refused:
            aws.invoke("sql")
        return "was not found" in str(refused.value)

    wait_until(is_gone)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"model.py": b"import os"}, ""),
        ({"adapter_model.bin": b"\x80\x02"}, ""),
        ({"notes/read.txt": b"hello"}, ""),
        ({"../../outside": b"x"}, "no usable tar.gz"),
    ],
)
def test_only_files_of_an_adapter_reach_the_container(
    aws: Aws, containers: FakeContainers, files: dict[str, bytes], reason: str
) -> None:
    found = aws.adapter("sql", aws.archive("sql", files=files))

    assert reason in found.get("FailureReason", "")
    assert found["InferenceComponentStatus"] == ("Failed" if reason else "InService")
    place = next(iter(containers.folders.values()))[IN_CONTAINER]
    here = {path.name for path in place.rglob("*") if path.is_file()}
    assert here == (set() if reason else {"adapter_config.json", "adapter_model.safetensors"})


def test_an_adapter_that_is_none_fails_with_the_reason(aws: Aws) -> None:
    aws.bucket.put("none.tar.gz", b"no archive")
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz"):
        pass
    aws.bucket.put("empty.tar.gz", data.getvalue())

    for name, reason in (
        ("none", "no usable tar.gz"),
        ("empty", "adapter_config.json"),
        ("gone", "there is nothing below"),
    ):
        found = aws.adapter(name, f"{aws.bucket.url}/{name}.tar.gz")
        assert found["InferenceComponentStatus"] == "Failed"
        assert reason in found["FailureReason"]


def test_a_container_that_loads_none_is_said_to(
    hosted: Server, bucket: Bucket, tmp_path: Path
) -> None:
    aws = Aws(hosted, bucket, tmp_path)
    aws.endpoint()
    aws.base()

    found = aws.adapter("sql", aws.archive("sql"))

    assert found["InferenceComponentStatus"] == "Failed"
    assert "--allow-runtime-adapters" in found["FailureReason"]


@pytest.mark.parametrize(
    ("specification", "reason"),
    [
        ({"Container": {"ArtifactUrl": "s3://b/a/"}}, "one .tar.gz"),
        (
            {"Container": {"ArtifactUrl": "s3://b/a.tar.gz", "Image": "tiny:1"}},
            "exclude each other",
        ),
        ({"ModelName": "m"}, "exclude each other"),
        ({"BaseInferenceComponentName": "nobody"}, "Could not find"),
    ],
)
def test_what_is_no_adapter_component_is_refused(
    aws: Aws, specification: dict[str, Any], reason: str
) -> None:
    body = {"BaseInferenceComponentName": "base", "Container": {"ArtifactUrl": "s3://b/a.tar.gz"}}
    with pytest.raises(ClientError, match=reason):
        aws.sagemaker.create_inference_component(
            InferenceComponentName="sql", EndpointName="e", Specification={**body, **specification}
        )


def wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_deploy_applies_adapters_beside_their_base_and_ends_others(
    hosted: Server, containers: FakeContainers, bucket: Bucket, tmp_path: Path
) -> None:
    aws = Aws(hosted, bucket, tmp_path)
    live = LiveSageMaker(poll_s=0.02)
    one = deployment(image="tiny:1", instance=deployment().instance, env={"ADAPTERS": "1"})
    wanted = SageMakerSpec(role_arn=ROLE, components=True, adapters={"sql": aws.archive("sql")})

    first = live.apply(one, wanted)
    assert [change.kind for change in first.changes] == ["create"] * 5
    aws.settled(f"{one.name}-sql")
    again = live.apply(one, wanted)
    assert {change.kind for change in again.changes} == {"same"}
    assert all(f"{one.name}-sql" in model.adapters for model in containers.servers.values())

    other = replace(wanted, adapters={"law": aws.archive("law")})
    assert [change.kind for change in live.diff(one, other)][-2:] == ["create", "delete"]
    live.apply(one, other)
    aws.settled(f"{one.name}-law")
    wait_until(
        lambda: all(
            set(model.adapters) == {f"{one.name}-law"} for model in containers.servers.values()
        )
    )

    ended = [change.name for change in live.delete(one.name)]
    assert ended[:3] == [f"{one.name}-law", f"{one.name}-model", one.name]


@pytest.mark.parametrize(
    ("given", "components", "reason"),
    [
        (("sql=s3://b/a.tar.gz",), False, "add --components|has none"),
        (("sql=s3://b/a/",), True, "no adapter component"),
        (("sql=s3://b/a.tar.gz", "sql=s3://b/b.tar.gz"), True, "no adapter component"),
        (("a_b=s3://b/a.tar.gz",), True, "cannot be an adapter's name"),
        ((f"{'a' * 60}=s3://b/a.tar.gz",), True, "cannot be the name"),
    ],
)
def test_deploy_refuses_adapters_that_aws_would(
    given: tuple[str, ...], components: bool, reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        wanted = SageMakerSpec(role_arn=ROLE, components=components, adapters=read_adapters(given))
        requests_of(deployment(), wanted)
