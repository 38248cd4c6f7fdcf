"""Endpoints by unmodified boto3: on `packager serve`'s application, and on moto."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from packager.addons.deploy.patches import Patch
from packager.addons.deploy.sagemaker.clients import Clients
from packager.addons.deploy.sagemaker.live import LiveSageMaker
from packager.addons.deploy.sagemaker.live_scaling import LiveScaling
from packager.addons.deploy.sagemaker.refusals import NotOurs
from packager.addons.deploy.sagemaker.requests import SCALES_TAG
from packager.addons.deploy.sagemaker.scaling import SCALING, scaling_requests
from packager.addons.deploy.sagemaker.spec import SageMakerSpec
from packager.core.deployment import Change, Deployment, DeployStatus
from packager.core.errors import AccessDenied, NotFound, Unavailable
from tests.support.cases import read_tables
from tests.support.deployments import ROLE, deployment
from tests.support.doubles.endpoint_containers import FakeContainers
from tests.support.hosting_server import Server, hosting, look_often, use_for_aws
from tests.support.refusals import raises_code

WANTED = SageMakerSpec(role_arn=ROLE)


COMPONENTS = SageMakerSpec(role_arn=ROLE, components=True)
ONE, TWO, BROKEN = "tiny:1", "tiny:2", "tiny:missing"
Kinds = list[tuple[str, str]]


def of(image: str, **changes: Any) -> Deployment:
    # A type that moto knows, too, with a batch and no environment.
    return deployment(image=image, instance=deployment().instance, **changes)


def kinds(changes: tuple[Change, ...]) -> Kinds:
    return [(change.kind, change.resource) for change in changes]


CREATED = [("create", "Model"), ("create", "EndpointConfig"), ("create", "Endpoint")]
SAME = [("same", "Model"), ("same", "EndpointConfig"), ("same", "Endpoint")]
UPDATED = [("create", "Model"), ("create", "EndpointConfig"), ("update", "Endpoint")]


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test-secret")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")


@pytest.fixture
def containers(monkeypatch: pytest.MonkeyPatch) -> FakeContainers:
    look_often(monkeypatch)
    return FakeContainers(images={ONE, TWO})


@pytest.fixture
def server(
    tmp_path: Path, containers: FakeContainers, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Server]:
    with hosting(tmp_path, containers) as found:
        use_for_aws(monkeypatch, found)
        yield found


@pytest.fixture
def live(server: Server) -> LiveSageMaker:
    return LiveSageMaker(Clients("us-east-1"), poll_s=0.01)


def applied(
    live: LiveSageMaker, image: str, wanted: SageMakerSpec = WANTED, **changes: Any
) -> tuple[Kinds, DeployStatus]:
    """Apply an image, and wait for it; return what was changed, and the state."""
    done = live.apply(of(image, **changes), wanted)
    return kinds(done.changes), live.status("my-model", wait_s=20)


def answer(live: LiveSageMaker) -> Any:
    return json.loads(live.invoke("my-model", b'{"inputs": "x"}'))


def test_an_endpoint_is_created_asked_updated_rolled_back_and_deleted(live: LiveSageMaker) -> None:
    assert live.status("my-model").state == "absent"

    created, ready = applied(live, ONE, env={"NAME": "one"})
    assert created == CREATED
    assert (ready.state, ready.image, ready.ready, ready.wanted) == ("ready", ONE, 1, 1)
    assert answer(live)["name"] == "one"

    updated, ready = applied(live, TWO, env={"NAME": "two"})
    assert (updated, ready.image) == (UPDATED, TWO)
    assert answer(live)["name"] == "two"

    live.roll_back("my-model")
    assert live.status("my-model", wait_s=20).image == ONE

    deleted = [change.resource for change in live.delete("my-model")]
    assert deleted == ["Endpoint", "EndpointConfig", "EndpointConfig", "Model", "Model"]
    assert live.status("my-model").state == "absent"


def test_a_rollback_passes_over_an_update_that_failed(live: LiveSageMaker) -> None:
    """SageMaker keeps the failed configuration, which is newer than the one that served."""
    applied(live, ONE)
    assert applied(live, BROKEN)[1].image == ONE
    with pytest.raises(NotFound, match="nothing else so far"):
        live.roll_back("my-model")

    assert applied(live, TWO)[1].image == TWO
    live.roll_back("my-model")

    assert live.status("my-model", wait_s=20).image == ONE
    live.roll_back("my-model")
    assert live.status("my-model", wait_s=20).image == TWO


def test_a_component_is_rolled_back_with_what_it_asked_for(live: LiveSageMaker) -> None:
    first: dict[str, Any] = {"env": {"NAME": "one"}, "memory_bytes": 2 << 30}
    applied(live, ONE, COMPONENTS, **first)
    applied(live, TWO, COMPONENTS, env={"NAME": "two"}, memory_bytes=3 << 30)
    assert answer(live)["name"] == "two"

    assert kinds(live.roll_back("my-model").changes) == [("update", "InferenceComponent")]
    live.status("my-model", wait_s=20)
    assert answer(live)["name"] == "one"
    assert kinds(live.diff(of(ONE, **first), COMPONENTS))[-1] == ("same", "InferenceComponent")


def test_a_difference_names_the_field_and_changes_nothing(live: LiveSageMaker) -> None:
    applied(live, ONE)

    changes = live.diff(of(TWO), WANTED)

    assert kinds(changes) == UPDATED
    assert changes[-1].differences[0][0] == "EndpointConfigName"
    assert live.status("my-model").image == ONE


@pytest.mark.parametrize("killed_before", ["CreateEndpointConfig", "CreateEndpoint"])
def test_applying_goes_on_after_it_was_killed(
    live: LiveSageMaker, monkeypatch: pytest.MonkeyPatch, killed_before: str
) -> None:
    call = live._call

    def killed(operation: str, **body: Any) -> None:
        if operation == killed_before:
            raise KeyboardInterrupt
        call(operation, **body)

    monkeypatch.setattr(live, "_call", killed)
    with pytest.raises(KeyboardInterrupt):
        live.apply(of(ONE), WANTED)
    monkeypatch.setattr(live, "_call", call)

    done = kinds(live.apply(of(ONE), WANTED).changes)

    at = [resource for _, resource in CREATED].index(killed_before.removeprefix("Create"))
    assert done == SAME[:at] + CREATED[at:]
    assert live.status("my-model", wait_s=20).state == "ready"


def test_an_update_that_does_not_start_leaves_the_old_image_serving(live: LiveSageMaker) -> None:
    applied(live, ONE, env={"NAME": "one"})

    _, found = applied(live, BROKEN)

    assert (found.state, found.image) == ("ready", ONE)
    assert "tiny:missing" in found.reason
    assert answer(live)["name"] == "one"


def test_an_endpoint_that_failed_is_made_again(live: LiveSageMaker) -> None:
    assert applied(live, BROKEN)[1].state == "failed"

    done, found = applied(live, ONE)

    assert (done[-1], found.state) == (("replace", "Endpoint"), "ready")


def test_one_change_is_under_way_at_most(live: LiveSageMaker, containers: FakeContainers) -> None:
    containers.gate.clear()
    live.apply(of(ONE), WANTED)
    try:
        with raises_code("UnderWay", match="Creating"):
            live.apply(of(TWO), WANTED)
    finally:
        containers.gate.set()
    assert live.status("my-model", wait_s=20).image == ONE


def test_what_others_made_is_kept(live: LiveSageMaker, server: Server) -> None:
    client = boto3.client("sagemaker", region_name="us-east-1")
    config = "my-model-0123abcd"  # named as ours are
    variant = {**read_tables(__file__)["variant"], "ModelName": "theirs"}
    client.create_model(ModelName="theirs", ExecutionRoleArn=ROLE, PrimaryContainer={"Image": ONE})
    client.create_endpoint_config(EndpointConfigName=config, ProductionVariants=[variant])
    client.create_endpoint(EndpointName="my-model", EndpointConfigName=config)

    with pytest.raises(NotOurs, match="packager did not make"):
        live.apply(of(ONE), WANTED)
    with pytest.raises(NotOurs):
        live.delete("my-model")
    with pytest.raises(NotOurs):
        live.roll_back("my-model")
    client.delete_endpoint(EndpointName="my-model")
    while live.status("my-model").state != "absent":
        pass

    assert live.delete("my-model") == ()  # nothing was begun, and a like name is not ours
    assert [one["EndpointConfigName"] for one in client.list_endpoint_configs()["EndpointConfigs"]]


def test_a_component_is_deployed_and_asked(live: LiveSageMaker) -> None:

    done, found = applied(live, ONE, COMPONENTS, env={"NAME": "one"})

    assert done == [*CREATED, ("create", "InferenceComponent")]
    assert (found.state, found.ready, found.wanted) == ("ready", 1, 1)
    assert answer(live)["name"] == "one"
    again, _ = applied(live, ONE, COMPONENTS, env={"NAME": "one"})
    assert again[-1] == ("same", "InferenceComponent")
    deleted = [one.resource for one in live.delete("my-model")]
    assert deleted[:2] == ["InferenceComponent", "Endpoint"]


def test_another_image_updates_the_component(live: LiveSageMaker) -> None:
    applied(live, ONE, COMPONENTS, env={"NAME": "one"})

    done, found = applied(live, TWO, COMPONENTS, env={"NAME": "two"})

    assert (done[-1], found.state) == (("update", "InferenceComponent"), "ready")
    assert answer(live)["name"] == "two"


def test_there_is_nothing_to_go_back_to_after_the_first_image(live: LiveSageMaker) -> None:
    with pytest.raises(NotFound, match="no endpoint"):
        live.roll_back("my-model")
    applied(live, ONE)
    with pytest.raises(NotFound, match="nothing else so far"):
        live.roll_back("my-model")


def test_what_the_server_refuses_is_told_with_its_words(live: LiveSageMaker) -> None:
    later = {"AsyncInferenceConfig": {"OutputConfig": {"S3OutputPath": "s3://bucket/later"}}}
    wanted = SageMakerSpec(role_arn=ROLE, patch=Patch(parts=({"CreateEndpointConfig": later},)))

    with raises_code("AwsRefused", match="CreateEndpointConfig: ValidationException: Async"):
        live.apply(of(ONE), wanted)


def test_an_address_that_does_not_answer_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_SAGEMAKER", "http://127.0.0.1:9")
    with pytest.raises(Unavailable, match="AWS does not answer DescribeEndpoint"):
        LiveSageMaker(Clients("us-east-1")).status("my-model")


def test_without_credentials_nothing_is_sent(
    live: LiveSageMaker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it keeps what it found
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(AccessDenied, match="no usable AWS credentials"):
        live.status("my-model")


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def on_moto(moto: str, monkeypatch: pytest.MonkeyPatch) -> LiveSageMaker:
    for service in ("SAGEMAKER", "APPLICATION_AUTO_SCALING", "CLOUDWATCH"):
        monkeypatch.setenv(f"AWS_ENDPOINT_URL_{service}", moto)
    return LiveSageMaker(Clients("us-east-1"), poll_s=0.01)


def test_moto_takes_an_endpoint_that_scales(on_moto: LiveSageMaker) -> None:
    from packager.catalog.instances import find_instance

    scaled = SageMakerSpec(role_arn=ROLE, max_instances=3, tags={"team": "search"})
    made = deployment(instance=find_instance("ml.g4dn.xlarge"))  # moto's newest GPU

    created = kinds(on_moto.apply(made, scaled).changes)

    assert created == [*CREATED, ("create", "ScalableTarget"), ("create", "ScalingPolicy")]
    assert on_moto.status("my-model", wait_s=5).state == "ready"
    again = kinds(on_moto.apply(made, scaled).changes)
    assert again == [*SAME, ("same", "ScalableTarget"), ("same", "ScalingPolicy")]
    more = SageMakerSpec(role_arn=ROLE, max_instances=5, tags={"team": "search"})
    assert ("update", "ScalableTarget") in kinds(on_moto.diff(made, more))
    alone = SageMakerSpec(role_arn=ROLE, tags={"team": "search"})
    assert kinds(on_moto.diff(made, alone))[-1] == ("delete", "ScalableTarget")
    assert kinds(on_moto.apply(made, alone).changes)[-1] == ("delete", "ScalableTarget")
    assert kinds(on_moto.diff(made, alone)) == SAME
    on_moto.apply(made, scaled)
    deleted = [change.resource for change in on_moto.delete("my-model")]
    assert deleted == ["ScalableTarget", "Endpoint", "EndpointConfig", "Model"]
    scaling = boto3.client("application-autoscaling", region_name="us-east-1")
    assert scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"] == []
    assert on_moto.delete("my-model") == ()


class ScalesComponents(Enum):
    """What moto 5.2 does not scale."""

    COPIES = "sagemaker:inference-component:DesiredCopyCount"


def test_what_wakes_a_component_is_put_found_again_and_deleted(
    on_moto: LiveSageMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in ("models", "responses"):
        name = f"moto.applicationautoscaling.{part}.ScalableDimensionValueSet"
        monkeypatch.setattr(name, ScalesComponents)
    clients = Clients("us-east-1")
    scaling = LiveScaling(
        clients=clients,
        describe=lambda *_: {"EndpointArn": "arn"},
        call=lambda operation, service="sagemaker", **body: (
            None if service == "sagemaker" else on_moto._call(operation, service=service, **body)
        ),
        tags=lambda _: {SCALES_TAG: "inference-component/my-model-model"},
    )
    asked = SageMakerSpec(role_arn=ROLE, components=True, min_instances=0, max_instances=2)
    requests = scaling_requests(deployment(), asked)

    for request in requests:
        scaling.send(request, "my-model")

    assert [scaling.change(one).kind for one in requests] == ["same"] * 4
    [alarm] = clients.of("cloudwatch").describe_alarms()["MetricAlarms"]
    policies = clients.of(SCALING).describe_scaling_policies(ServiceNamespace="sagemaker")
    arns = {one["PolicyName"]: one["PolicyARN"] for one in policies["ScalingPolicies"]}
    assert alarm["AlarmActions"] == [arns["my-model-wake"]]
    more = SageMakerSpec(role_arn=ROLE, components=True, min_instances=1, max_instances=2)
    for one in (found := scaling.surplus("my-model", scaling_requests(deployment(), more))):
        scaling.remove("my-model", one, scales=True)
    assert [one.change.resource for one in found] == ["ScalingPolicy", "MetricAlarm"]
    assert scaling.surplus("my-model", scaling_requests(deployment(), more)) == []
    left = clients.of(SCALING).describe_scaling_policies(ServiceNamespace="sagemaker")
    assert {one["PolicyName"] for one in left["ScalingPolicies"]} == {"my-model-requests"}
    assert scaling.surplus("my-model", requests) == []
    for request in requests:
        scaling.send(request, "my-model")
    gone = [one.resource for one in scaling.stop("my-model", {"EndpointArn": "arn"})]
    assert gone == ["ScalableTarget", "MetricAlarm"]
    assert clients.of("cloudwatch").describe_alarms()["MetricAlarms"] == []
