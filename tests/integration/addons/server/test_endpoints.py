"""States of endpoints and components; containers are threads, the store is SQLite."""

from __future__ import annotations

import asyncio
import errno
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from packager.addons.deploy.sagemaker.api_refusals import ValidationRefused
from packager.addons.deploy.sagemaker.shapes import answer_faults, read_input
from packager.addons.server.endpoints import fleet
from packager.addons.server.endpoints.disk import disk_too_small
from packager.addons.server.endpoints.traffic import Pool
from packager.addons.server.operations import endpoints as endpoint_operations
from packager.addons.server.operations import logs
from packager.addons.server.sagemaker.hosting import ModelData, ServerSpec
from packager.addons.server.services import Operation, ServeServices
from packager.core.units import GIB
from tests.support.cases import cases, read_tables
from tests.support.coroutines import eventually
from tests.support.doubles.endpoint_containers import FakeContainers
from tests.support.hosting_server import look_often
from tests.support.refusals import raises_code
from tests.support.serve_services import config_body, hosting_operations, make_services, model_body

pytestmark = pytest.mark.usefixtures("runner")

NOT_FOUND = 'Could not find endpoint "arn:aws:sagemaker:us-east-1:000000000000:endpoint/e".'
UNDER_WAY = frozenset({"Creating", "Updating", "SystemUpdating", "RollingBack", "Deleting"})
GROUP = {"logGroupName": "/aws/sagemaker/Endpoints/e"}
LOST = "ValueError: no such weight"  # what the containers' doubles log
ENDED = (
    f"the container ended with status 3: {LOST}; the endpoint's log has what the container wrote"
)


@dataclass
class Api:
    """Operations as a client calls them, checked by AWS's model on both sides."""

    services: ServeServices
    containers: FakeContainers
    table: dict[str, Operation]

    async def __call__(self, operation: str, **body: Any) -> Any:
        answer = await self.table[operation](read_input(operation, body))
        told = {key: value for key, value in answer.items() if value is not None}
        assert answer_faults(operation, _plain(told)) == ()
        return told

    async def deploy(self, *names: str, **environment: str) -> None:
        """Make models and configurations of these names, and the endpoint `e` of the first."""
        for name in names:
            await self("CreateModel", **model_body(name, **environment))
            await self("CreateEndpointConfig", **config_body(name))
        await self("CreateEndpoint", EndpointName="e", EndpointConfigName=names[0])

    async def serve(self, *names: str, **environment: str) -> None:
        """Deploy, and wait until the endpoint is in service or has failed."""
        await self.deploy(*names, **environment)
        await self.settled()

    async def deploy_variants(self, **variants: Any) -> None:
        """Make the endpoint `e` of variants; each has a model of its name."""
        named = (
            {"VariantName": name, "ModelName": name, **more} for name, more in variants.items()
        )
        await self("CreateEndpointConfig", **config_body("both", *named))
        await self("CreateEndpoint", EndpointName="e", EndpointConfigName="both")

    async def update(self, name: str) -> None:
        await self("UpdateEndpoint", EndpointName="e", EndpointConfigName=name)

    async def settled(self, name: str = "e", kind: str = "Endpoint") -> Any:
        """Wait until nothing is under way; return what Describe says then."""
        async with asyncio.timeout(20):
            while True:
                found = await self(f"Describe{kind}", **{f"{kind}Name": name})
                if found[f"{kind}Status"] not in UNDER_WAY:
                    return found
                await asyncio.sleep(0.01)

    async def delete(self) -> None:
        """Delete the endpoint, and wait until it is gone."""
        await self("DeleteEndpoint", EndpointName="e")
        async with asyncio.timeout(20):
            with pytest.raises(ValidationRefused) as refused:
                while True:
                    await self("DescribeEndpoint", EndpointName="e")
                    await asyncio.sleep(0.01)
        assert refused.value.message == NOT_FOUND

    def pools(self, name: str = "e", kind: str = "endpoint") -> dict[str, Pool]:
        return dict(self.services.endpoints.pools(kind, name))

    def urls(self, name: str = "e", kind: str = "endpoint") -> list[str]:
        return [one.url for pool in self.pools(name, kind).values() for one in pool.servers]

    async def names(self, *urls: str) -> list[str]:
        """Return the models that answer at the endpoint's containers."""
        http, found = self.services.endpoints.http(), []
        for url in urls or self.urls():
            async with http.post(f"{url}/invocations", data=b"{}") as answer:
                found.append(json.loads(await answer.read())["name"])
        return found


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items() if one is not None}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value.timestamp() if hasattr(value, "timestamp") else value


@pytest.fixture
def containers(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeContainers]:
    look_often(monkeypatch)
    found = FakeContainers()
    yield found
    found.close()


@asynccontextmanager
async def serving(state: Path, containers: FakeContainers) -> AsyncIterator[Api]:
    """A server from its start to its end; another one may follow in the same folder."""
    services = make_services(state, containers)
    await services.endpoints.start()
    try:
        yield Api(services, containers, hosting_operations(services))
    finally:
        await services.endpoints.close()
        services.resources.close()


@pytest.fixture
def api(tmp_path: Path, containers: FakeContainers, runner: asyncio.Runner) -> Iterator[Api]:
    server = serving(tmp_path, containers)
    yield runner.run(server.__aenter__())
    runner.run(server.__aexit__(None, None, None))


async def test_an_endpoint_is_created_and_in_service_once_its_container_answers(api: Api) -> None:
    api.containers.gate.clear()
    await api.deploy("one", READY_S="0.2")
    creating = await api("DescribeEndpoint", EndpointName="e")
    assert (creating["EndpointStatus"], creating["EndpointConfigName"]) == ("Creating", "one")
    assert api.urls() == []
    api.containers.gate.set()

    found = await api.settled()

    assert found["EndpointStatus"] == "InService"
    assert found["ProductionVariants"][0]["CurrentInstanceCount"] == 1
    assert "FailureReason" not in found
    assert await api.names() == ["one"]


@pytest.mark.parametrize(
    ("there", "reason"), [(True, ENDED), (False, "the Docker Engine has no image 'tiny:1'")]
)
async def test_an_endpoint_whose_container_ends_or_cannot_begin_has_failed_with_the_reason(
    api: Api, there: bool, reason: str
) -> None:
    if not there:
        api.containers.images.clear()
    await api.deploy("one", FAIL="1")

    found = await api.settled()

    assert (found["EndpointStatus"], found["FailureReason"]) == ("Failed", reason)
    assert api.containers.there == {}
    await api.delete()


async def test_a_failed_health_check_fails_it(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    original = endpoint_operations.variants_of

    def hurried(*arguments: Any) -> Any:
        found = original(*arguments)
        return tuple(replace(one, server=replace(one.server, health_s=0)) for one in found)

    monkeypatch.setattr(endpoint_operations, "variants_of", hurried)
    await api.deploy("one", READY_S="60")

    found = await api.settled()

    assert found["EndpointStatus"] == "Failed"
    told = "the container did not pass its health check within 0 s"
    assert found["FailureReason"].startswith(told)


async def test_an_update_switches_when_the_new_container_answers(api: Api) -> None:
    await api.serve("one", "two")
    (old,) = api.urls()
    api.containers.gate.clear()
    await api.update("two")
    updating = await api("DescribeEndpoint", EndpointName="e")
    assert (updating["EndpointStatus"], updating["EndpointConfigName"]) == ("Updating", "one")
    assert updating["PendingDeploymentSummary"]["EndpointConfigName"] == "two"
    assert api.urls() == [old]
    api.containers.gate.set()

    found = await api.settled()

    assert (found["EndpointStatus"], found["EndpointConfigName"]) == ("InService", "two")
    assert await api.names() == ["two"]
    await eventually(lambda: len(api.containers.there) == 1)
    assert api.containers.stopped == ["endpoint/e/AllTraffic/0"]


async def test_the_old_container_ends_only_when_its_last_request_has(api: Api) -> None:
    await api.serve("one", "two")
    old = api.pools()["AllTraffic"].servers[0]
    with old.leased():
        await api.update("two")
        await api.settled()
        await asyncio.sleep(0.1)
        assert api.containers.stopped == []
        assert await api.names(old.url) == ["one"]
    await eventually(lambda: bool(api.containers.stopped))


async def test_an_update_that_fails_leaves_the_endpoint_as_it_was(api: Api) -> None:
    await api.deploy("one")
    await api("CreateModel", **model_body("bad", FAIL="1"))
    await api("CreateEndpointConfig", **config_body("bad"))
    await api.settled()
    before = api.urls()
    await api.update("bad")

    found = await api.settled()

    assert (found["EndpointStatus"], found["EndpointConfigName"]) == ("InService", "one")
    assert "no such weight" in found["FailureReason"]
    assert "PendingDeploymentSummary" not in found
    assert api.urls() == before
    assert len(api.containers.there) == 1


async def test_an_update_while_another_is_under_way_is_refused(api: Api) -> None:
    api.containers.gate.clear()
    await api.deploy("one", "two")

    with pytest.raises(ValidationRefused, match="Cannot update in-progress endpoint"):
        await api.update("two")
    api.containers.gate.set()
    assert (await api.settled())["EndpointConfigName"] == "one"


async def test_an_endpoint_is_deleted_while_it_is_being_created(api: Api) -> None:
    api.containers.gate.clear()
    await api.deploy("one")
    await asyncio.sleep(0.1)  # a thread is in the middle of the start
    deleting = asyncio.create_task(api.delete())
    await asyncio.sleep(0.1)
    api.containers.gate.set()

    await deleting

    assert api.containers.there == {}


async def test_a_name_that_is_taken_is_refused_in_the_words_that_sdks_look_for(api: Api) -> None:
    await api.deploy("one")
    endpoint = {"EndpointName": "e", "EndpointConfigName": "one"}
    bodies = {"CreateModel": model_body("one"), "CreateEndpointConfig": config_body("one")}
    bodies["CreateEndpoint"] = endpoint
    for operation, taken in read_tables(__file__)["taken"].items():
        with pytest.raises(ValidationRefused) as refused:
            await api(operation, **bodies[operation])
        told = taken.format("arn:aws:sagemaker:us-east-1:000000000000")
        assert refused.value.message == f"Cannot create already existing {told}."
    await api.settled()


async def test_two_variants_have_a_container_each_and_weights_that_can_be_changed(api: Api) -> None:
    for name in ("a", "b"):
        await api("CreateModel", **model_body(name))
    await api.deploy_variants(a={"InitialVariantWeight": 3.0}, b={"InitialVariantWeight": 1.0})
    await api.settled()

    pools = api.pools()
    names = {name: await api.names(pool.servers[0].url) for name, pool in pools.items()}
    assert names == {"a": ["a"], "b": ["b"]}
    wanted = [{"VariantName": "a", "DesiredWeight": 0.0}]
    await api(
        "UpdateEndpointWeightsAndCapacities", EndpointName="e", DesiredWeightsAndCapacities=wanted
    )

    found = await api.settled()
    weights = {one["VariantName"]: one["CurrentWeight"] for one in found["ProductionVariants"]}
    assert weights == {"a": 0.0, "b": 1.0}
    assert {name: pool.weight for name, pool in pools.items()} == weights


async def test_one_variant_that_fails_takes_the_other_down(api: Api) -> None:
    await api("CreateModel", **model_body("a"))
    await api("CreateModel", **model_body("b", FAIL="1"))
    await api.deploy_variants(a={}, b={})

    assert (await api.settled())["EndpointStatus"] == "Failed"
    assert api.containers.there == {}


async def test_a_new_server_adopts_containers(tmp_path: Path, containers: FakeContainers) -> None:
    async with serving(tmp_path, containers) as api:
        await api.deploy("one")
        await api.settled()
        before = api.urls()
    async with serving(tmp_path, containers) as api:
        found = await api.settled()
        assert found["EndpointStatus"] == "InService"
        await eventually(lambda: api.urls() == before)
    assert containers.started == ["endpoint/e/AllTraffic/0"]


async def test_a_new_server_continues_an_update(tmp_path: Path, containers: FakeContainers) -> None:
    async with serving(tmp_path, containers) as api:
        await api.deploy("one", "two", READY_S="0.3")
        await api.settled()
        await api.update("two")
    async with serving(tmp_path, containers) as api:
        found = await api.settled()
        assert (found["EndpointStatus"], found["EndpointConfigName"]) == ("InService", "two")
        assert await api.names() == ["two"]
    async with serving(tmp_path, containers) as api:
        await api.settled()
        await eventually(lambda: len(containers.there) == 1)


async def test_unknown_containers_are_removed(tmp_path: Path, containers: FakeContainers) -> None:
    (tmp_path / "endpoints" / "feedfeed").mkdir(parents=True)
    spec = ServerSpec(image="tiny:1", environment={})
    owner = "endpoint/old/AllTraffic/0"
    made = containers.start(spec, owner=owner, generation="feedfeed", folders={})

    async with serving(tmp_path, containers):
        assert made.id not in containers.there
        assert list((tmp_path / "endpoints").glob("*")) == []


async def test_a_container_that_ended_by_itself_is_started_again(api: Api) -> None:
    await api.serve("one")
    server = api.pools()["AllTraffic"].servers[0]
    api.containers.die(server.container)

    await eventually(lambda: "again endpoint/e/AllTraffic/0" in api.containers.started)

    assert server.is_ready is False
    found = await api("DescribeEndpoint", EndpointName="e")
    assert found["ProductionVariants"][0]["CurrentInstanceCount"] == 0


async def test_a_container_that_somebody_removed_is_made_anew(api: Api) -> None:
    await api.serve("one")
    before = api.urls()
    api.containers.remove(next(iter(api.containers.there)))

    await eventually(lambda: api.urls() != before)

    assert (await api.settled())["EndpointStatus"] == "InService"
    assert await api.names() == ["one"]


COMPONENT = read_tables(__file__)["component"]


@pytest.fixture
def bare(api: Api, runner: asyncio.Runner) -> Api:
    """An endpoint whose variant waits for components."""

    async def make() -> None:
        role = "arn:aws:iam::000000000000:role/packager"
        config = config_body("bare", {"VariantName": "v"}, ExecutionRoleArn=role)
        await api("CreateModel", **model_body("one"))
        await api("CreateEndpointConfig", **config)
        await api("CreateEndpoint", EndpointName="e", EndpointConfigName="bare")
        assert (await api.settled())["EndpointStatus"] == "InService"

    runner.run(make())
    return api


async def test_a_component_has_as_many_containers_as_copies(bare: Api) -> None:
    assert bare.containers.there == {}
    await bare("CreateInferenceComponent", **COMPONENT)
    found = await bare.settled("c", "InferenceComponent")
    assert found["InferenceComponentStatus"] == "InService"
    assert (found["EndpointName"], found["VariantName"]) == ("e", "v")
    (first,) = bare.urls("c", "inference-component")

    for copies in (3, 2, 0):
        wanted = {"InferenceComponentName": "c", "DesiredRuntimeConfig": {"CopyCount": copies}}
        await bare("UpdateInferenceComponentRuntimeConfig", **wanted)
        found = await bare.settled("c", "InferenceComponent")
        assert found["RuntimeConfig"]["CurrentCopyCount"] == copies
        urls = bare.urls("c", "inference-component")
        assert len(urls) == copies
        assert copies == 0 or urls[0] == first

    with pytest.raises(ValidationRefused, match="it has inference components"):
        await bare("DeleteEndpoint", EndpointName="e")
    await bare("DeleteInferenceComponent", InferenceComponentName="c")
    await bare.delete()  # the component's end need not be waited for
    async with asyncio.timeout(10):
        while (await bare("ListInferenceComponents"))["InferenceComponents"]:
            await asyncio.sleep(0.01)
    assert bare.containers.there == {}


async def test_of_several_specifications_that_of_the_variants_instance_type_is_served(
    bare: Api,
) -> None:
    (variant,) = (await bare("DescribeEndpointConfig", EndpointConfigName="bare"))[
        "ProductionVariants"
    ]
    mine = {"InstanceType": variant["InstanceType"], "ModelName": "one"}
    choices = [{"InstanceType": "ml.p4d.24xlarge", "ModelName": "none"}, mine]
    named = {"InferenceComponentName": "c"}

    await bare("CreateInferenceComponent", **named, EndpointName="e", VariantName="v",
               Specifications=choices, RuntimeConfig={"CopyCount": 1})  # fmt: skip
    found = await bare.settled("c", "InferenceComponent")
    assert (found["InferenceComponentStatus"], found["Specifications"]) == ("InService", [mine])
    await bare("UpdateInferenceComponent", **named, Specifications=[mine])
    assert (await bare.settled("c", "InferenceComponent"))["Specification"] == mine
    with pytest.raises(ValidationRefused, match="exclude each other"):
        await bare("UpdateInferenceComponent", **named, Specification=mine, Specifications=choices)


async def test_a_component_is_refused_where_the_variant_has_a_model(api: Api) -> None:
    await api.serve("one")

    with pytest.raises(ValidationRefused, match="has a model of its own"):
        await api("CreateInferenceComponent", **COMPONENT)


async def test_components_are_listed_by_their_endpoint(bare: Api) -> None:
    await bare("CreateInferenceComponent", **COMPONENT)

    async def names(**query: str) -> list[str]:
        found = await bare("ListInferenceComponents", **query)
        return [one["InferenceComponentName"] for one in found["InferenceComponents"]]

    assert await names(EndpointNameEquals="e", VariantNameEquals="v") == ["c"]
    assert await names(EndpointNameEquals="f") == []
    await bare.settled("c", "InferenceComponent")


async def test_lists_filter_sort_and_go_on(api: Api) -> None:
    for number in range(5):
        await api("CreateModel", **model_body(f"model-{number}"))

    async def listed(**query: Any) -> tuple[list[str], str | None]:
        found = await api("ListModels", SortBy="Name", SortOrder="Ascending", **query)
        return [one["ModelName"] for one in found["Models"]], found.get("NextToken")

    names, token = await listed(MaxResults=2)
    assert names == ["model-0", "model-1"]
    rest = await listed(MaxResults=100, NextToken=token)
    assert rest == (["model-2", "model-3", "model-4"], None)
    assert await listed(CreationTimeAfter=time.time() + 60) == ([], None)
    assert await listed(NameContains="el-3") == (["model-3"], None)


@cases("missing")
async def test_missing_things_are_refused(api: Api, operation: str, body: dict[str, Any]) -> None:
    with pytest.raises(ValidationRefused, match="Could not find"):
        await api(operation, **body)


async def test_the_log_of_a_container_is_a_stream_of_the_endpoints_group(api: Api) -> None:
    await api.serve("one")
    table = logs.operations(api.services)

    found = await table["FilterLogEvents"](GROUP)

    (event,) = found["events"]
    assert (event["message"], event["timestamp"]) == (LOST, 1795428000123)
    assert event["logStreamName"] == "AllTraffic/000000000000"
    streams = await table["DescribeLogStreams"](GROUP)
    assert [one["logStreamName"] for one in streams["logStreams"]] == [event["logStreamName"]]
    stream = {**GROUP, "logStreamName": event["logStreamName"]}
    read = await table["GetLogEvents"](stream)
    assert [one["message"] for one in read["events"]] == [LOST]
    again = await table["GetLogEvents"]({**stream, "nextToken": read["nextForwardToken"]})
    assert (again["events"], again["nextForwardToken"]) == ([], "f/1")
    later = await table["FilterLogEvents"]({**GROUP, "startTime": 1795428000124})
    assert later["events"] == []
    with raises_code("ResourceNotFoundException"):
        await table["FilterLogEvents"]({"logGroupName": "/aws/sagemaker/Endpoints/other"})


async def test_the_log_of_an_endpoint_that_failed_is_kept(api: Api, tmp_path: Path) -> None:
    await api.serve("one", FAIL="1")

    found = await logs.operations(api.services)["FilterLogEvents"](GROUP)

    assert [one["message"] for one in found["events"]] == [LOST]
    await api.delete()
    assert list((tmp_path / "endpoints").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "told"), [("large", "need 3.0 GiB of disk"), ("full", "no space left")]
)
async def test_data_that_do_not_fit_on_the_disk_fail_the_endpoint_and_leave_nothing(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, told: str
) -> None:
    def fetch(data: ModelData, folder: Path, *_: object, place: str | None) -> None:
        folder.mkdir(parents=True)
        (folder / "half").write_bytes(b"a")
        if data.uri.endswith("/full"):
            raise OSError(errno.ENOSPC, "no space left on device")
        raise disk_too_small(3 * GIB, GIB, folder)

    monkeypatch.setattr(fleet, "fetch_data", fetch)
    body = model_body(name)
    body["PrimaryContainer"]["ModelDataUrl"] = f"s3://bucket/{name}"
    await api("CreateModel", **body)
    await api("CreateEndpointConfig", **config_body(name))
    await api("CreateEndpoint", EndpointName="e", EndpointConfigName=name)

    found = await api.settled()

    assert found["EndpointStatus"] == "Failed"
    assert told in found["FailureReason"]
    assert not list((tmp_path / "endpoints").rglob("half"))
