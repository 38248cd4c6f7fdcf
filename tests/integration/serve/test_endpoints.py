"""States of endpoints and components; containers are threads, the store is SQLite."""

from __future__ import annotations

import asyncio
import errno
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from packager.core.units import GIB
from packager.sagemaker.hosting import ModelData, ServerSpec
from packager.sagemaker.refusals import ValidationRefused
from packager.sagemaker.shapes import answer_faults, read_input
from packager.serve.endpoints import fleet, lifecycle
from packager.serve.endpoints.disk import DiskTooSmall
from packager.serve.operations import endpoints as endpoint_operations
from packager.serve.operations import logs
from packager.serve.operations.log_errors import LogMissing
from packager.serve.services import Operation, ServeServices
from tests.support.doubles.endpoint_containers import FakeContainers
from tests.support.serve_services import config_body, hosting_operations, make_services, model_body

NOT_FOUND = 'Could not find endpoint "arn:aws:sagemaker:us-east-1:000000000000:endpoint/e".'
UNDER_WAY = frozenset({"Creating", "Updating", "SystemUpdating", "RollingBack", "Deleting"})


@dataclass
class Api:
    """Operations as a client calls them, checked by AWS's model on both sides."""

    services: ServeServices
    table: dict[str, Operation]

    async def __call__(self, operation: str, **body: Any) -> Any:
        answer = await self.table[operation](read_input(operation, body))
        told = {key: value for key, value in answer.items() if value is not None}
        assert answer_faults(operation, _plain(told)) == ()
        return told

    async def settled(self, name: str = "e", kind: str = "Endpoint") -> Any:
        """Wait until nothing is under way; return what Describe says then."""
        async with asyncio.timeout(20):
            while True:
                found = await self(f"Describe{kind}", **{f"{kind}Name": name})
                if found[f"{kind}Status"] not in UNDER_WAY:
                    return found
                await asyncio.sleep(0.01)

    async def gone(self, name: str = "e") -> None:
        async with asyncio.timeout(20):
            while True:
                try:
                    await self("DescribeEndpoint", EndpointName=name)
                except ValidationRefused:
                    return
                await asyncio.sleep(0.01)

    def urls(self, name: str = "e", kind: str = "endpoint") -> list[str]:
        pools = self.services.endpoints.pools(kind, name)
        return [server.url for pool in pools.values() for server in pool.servers]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items() if one is not None}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value.timestamp() if hasattr(value, "timestamp") else value


@pytest.fixture
def containers(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(fleet, "_POLL_S", 0.01)
    monkeypatch.setattr(lifecycle, "_WATCH_S", 0.05)
    found = FakeContainers()
    yield found
    found.close()


@asynccontextmanager
async def serving(state: Path, containers: FakeContainers) -> AsyncIterator[Api]:
    """A server from its start to its end; another one may follow in the same folder."""
    services = make_services(state, containers)
    await services.endpoints.start()
    try:
        yield Api(services, hosting_operations(services))
    finally:
        await services.endpoints.close()
        services.resources.close()


async def deployed(api: Api, *names: str, **environment: str) -> None:
    """Make models and configurations of these names, and the endpoint `e` of the first."""
    for name in names:
        await api("CreateModel", **model_body(name, **environment))
        await api("CreateEndpointConfig", **config_body(name))
    await api("CreateEndpoint", EndpointName="e", EndpointConfigName=names[0])


Test = Callable[[Api], Awaitable[None]]


def run(tmp_path: Path, containers: FakeContainers, test: Test) -> None:
    async def whole() -> None:
        async with serving(tmp_path, containers) as api:
            await test(api)

    asyncio.run(whole())


async def name_at(api: Api, url: str) -> str:
    async with api.services.endpoints.http().post(f"{url}/invocations", data=b"{}") as answer:
        return str(json.loads(await answer.read())["name"])


def test_an_endpoint_is_created_and_in_service_once_its_container_answers(
    tmp_path: Path, containers: FakeContainers
) -> None:
    async def test(api: Api) -> None:
        containers.gate.clear()
        await deployed(api, "one", READY_S="0.2")
        creating = await api("DescribeEndpoint", EndpointName="e")
        assert (creating["EndpointStatus"], creating["EndpointConfigName"]) == ("Creating", "one")
        assert api.urls() == []
        containers.gate.set()

        found = await api.settled()

        assert found["EndpointStatus"] == "InService"
        assert found["ProductionVariants"][0]["CurrentInstanceCount"] == 1
        assert "FailureReason" not in found
        assert [await name_at(api, url) for url in api.urls()] == ["one"]

    run(tmp_path, containers, test)


def test_an_endpoint_whose_container_ends_has_failed_with_the_reason(
    tmp_path: Path, containers: FakeContainers
) -> None:
    async def test(api: Api) -> None:
        await deployed(api, "one", FAIL="1")

        found = await api.settled()

        assert found["EndpointStatus"] == "Failed"
        assert found["FailureReason"] == (
            "the container ended with status 3: ValueError: no such weight; "
            "the endpoint's log has what the container wrote"
        )
        assert containers.there == {}
        await api("DeleteEndpoint", EndpointName="e")
        await api.gone()

    run(tmp_path, containers, test)


def test_an_image_that_is_not_there_fails_the_endpoint(
    tmp_path: Path, containers: FakeContainers
) -> None:
    async def test(api: Api) -> None:
        containers.images.clear()
        await deployed(api, "one")

        found = await api.settled()

        assert found["EndpointStatus"] == "Failed"
        assert found["FailureReason"] == "the Docker Engine has no image 'tiny:1'"

    run(tmp_path, containers, test)


def test_a_health_check_that_is_never_passed_fails_after_its_time(
    tmp_path: Path, containers: FakeContainers, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(api: Api) -> None:
        original = endpoint_operations.variants_of

        def hurried(*arguments: Any) -> Any:
            return tuple(
                replace(one, server=replace(one.server, health_s=0)) for one in original(*arguments)
            )

        monkeypatch.setattr(endpoint_operations, "variants_of", hurried)
        await deployed(api, "one", READY_S="60")

        found = await api.settled()

        assert found["EndpointStatus"] == "Failed"
        assert found["FailureReason"].startswith(
            "the container did not pass its health check within 0 s"
        )

    run(tmp_path, containers, test)


def test_an_update_switches_when_the_new_container_answers_and_ends_the_old_one(
    tmp_path: Path, containers: FakeContainers
) -> None:
    async def test(api: Api) -> None:
        await deployed(api, "one", "two")
        await api.settled()
        (old,) = api.urls()
        containers.gate.clear()
        await api("UpdateEndpoint", EndpointName="e", EndpointConfigName="two")
        updating = await api("DescribeEndpoint", EndpointName="e")
        assert updating["EndpointStatus"] == "Updating"
        assert updating["EndpointConfigName"] == "one"
        assert updating["PendingDeploymentSummary"]["EndpointConfigName"] == "two"
        assert api.urls() == [old]
        containers.gate.set()

        found = await api.settled()

        assert (found["EndpointStatus"], found["EndpointConfigName"]) == ("InService", "two")
        assert [await name_at(api, url) for url in api.urls()] == ["two"]
        async with asyncio.timeout(10):
            while len(containers.there) > 1:
                await asyncio.sleep(0.01)
        assert containers.stopped == ["endpoint/e/AllTraffic/0"]

    run(tmp_path, containers, test)


def test_the_old_container_ends_only_when_its_last_request_has(
    tmp_path: Path, containers: FakeContainers
) -> None:
    async def test(api: Api) -> None:
        await deployed(api, "one", "two")
        await api.settled()
        old = api.services.endpoints.pools("endpoint", "e")["AllTraffic"].servers[0]
        with old.leased():
            await api("UpdateEndpoint", EndpointName="e", EndpointConfigName="two")
            await api.settled()
            await asyncio.sleep(0.1)
            assert containers.stopped == []
            assert await name_at(api, old.url) == "one"
        async with asyncio.timeout(10):
            while not containers.stopped:
                await asyncio.sleep(0.01)

    run(tmp_path, containers, test)


def test_an_update_that_fails_leaves_the_endpoint_as_it_was(
    tmp_path: Path, containers: FakeContainers
) -> None:
    async def test(api: Api) -> None:
        await deployed(api, "one")
        await api("CreateModel", **model_body("bad", FAIL="1"))
        await api("CreateEndpointConfig", **config_body("bad"))
        await api.settled()
        before = api.urls()
        await api("UpdateEndpoint", EndpointName="e", EndpointConfigName="bad")

        found = await api.settled()

        assert (found["EndpointStatus"], found["EndpointConfigName"]) == ("InService", "one")
        assert "no such weight" in found["FailureReason"]
        assert "PendingDeploymentSummary" not in found
        assert api.urls() == before
        assert len(containers.there) == 1

    run(tmp_path, containers, test)


def test_an_update_while_another_is_under_way_is_refused(
    tmp_path: Path, containers: FakeContainers
) -> None:
    async def test(api: Api) -> None:
        containers.gate.clear()
        await deployed(api, "one", "two")

        with pytest.raises(ValidationRefused, match="Cannot update in-progress endpoint"):
            await api("UpdateEndpoint", EndpointName="e", EndpointConfigName="two")
        containers.gate.set()
        assert (await api.settled())["EndpointConfigName"] == "one"

    run(tmp_path, containers, test)


def test_an_endpoint_is_deleted_while_it_is_being_created(
    tmp_path: Path, containers: FakeContainers
) -> None:
    async def test(api: Api) -> None:
        containers.gate.clear()
        await deployed(api, "one")
        await asyncio.sleep(0.1)  # a thread is in the middle of the start
        deleting = asyncio.create_task(api("DeleteEndpoint", EndpointName="e"))
        await asyncio.sleep(0.1)
        containers.gate.set()
        await deleting

        await api.gone()

        assert containers.there == {}
        with pytest.raises(ValidationRefused) as refused:
            await api("DescribeEndpoint", EndpointName="e")
        assert refused.value.message == NOT_FOUND

    run(tmp_path, containers, test)


def test_a_name_that_is_taken_is_refused_in_the_words_that_sdks_look_for(
    tmp_path: Path, containers: FakeContainers
) -> None:
    async def test(api: Api) -> None:
        await deployed(api, "one")
        arn = "arn:aws:sagemaker:us-east-1:000000000000"

        with pytest.raises(ValidationRefused) as model:
            await api("CreateModel", **model_body("one"))
        with pytest.raises(ValidationRefused) as config:
            await api("CreateEndpointConfig", **config_body("one"))
        with pytest.raises(ValidationRefused) as endpoint:
            await api("CreateEndpoint", EndpointName="e", EndpointConfigName="one")

        taken = "Cannot create already existing"
        assert model.value.message == f'{taken} model "{arn}:model/one".'
        assert config.value.message == (
            f'{taken} endpoint configuration "{arn}:endpoint-config/one".'
        )
        assert endpoint.value.message == f'{taken} endpoint "{arn}:endpoint/e".'
        await api.settled()

    run(tmp_path, containers, test)


def test_two_variants_have_a_container_each_and_weights_that_can_be_changed(
    tmp_path: Path, containers: FakeContainers
) -> None:
    async def test(api: Api) -> None:
        for name in ("one", "two"):
            await api("CreateModel", **model_body(name))
        a = {"VariantName": "a", "ModelName": "one", "InitialVariantWeight": 3.0}
        b = {"VariantName": "b", "ModelName": "two", "InitialVariantWeight": 1.0}
        await api("CreateEndpointConfig", **config_body("both", a, b))
        await api("CreateEndpoint", EndpointName="e", EndpointConfigName="both")
        await api.settled()

        pools = api.services.endpoints.pools("endpoint", "e")
        names = {name: await name_at(api, pools[name].servers[0].url) for name in pools}
        assert names == {"a": "one", "b": "two"}
        await api(
            "UpdateEndpointWeightsAndCapacities",
            EndpointName="e",
            DesiredWeightsAndCapacities=[{"VariantName": "a", "DesiredWeight": 0.0}],
        )

        found = await api.settled()
        weights = {one["VariantName"]: one["CurrentWeight"] for one in found["ProductionVariants"]}
        assert weights == {"a": 0.0, "b": 1.0}
        assert {name: pool.weight for name, pool in pools.items()} == weights

    run(tmp_path, containers, test)


def test_one_variant_that_fails_takes_the_other_down(
    tmp_path: Path, containers: FakeContainers
) -> None:
    async def test(api: Api) -> None:
        await api("CreateModel", **model_body("one"))
        await api("CreateModel", **model_body("bad", FAIL="1"))
        a = {"VariantName": "a", "ModelName": "one"}
        b = {"VariantName": "b", "ModelName": "bad"}
        await api("CreateEndpointConfig", **config_body("both", a, b))
        await api("CreateEndpoint", EndpointName="e", EndpointConfigName="both")

        assert (await api.settled())["EndpointStatus"] == "Failed"
        assert containers.there == {}

    run(tmp_path, containers, test)


def test_a_server_that_starts_again_adopts_the_containers_that_run(
    tmp_path: Path, containers: FakeContainers
) -> None:
    async def whole() -> None:
        async with serving(tmp_path, containers) as api:
            await deployed(api, "one")
            await api.settled()
            before = api.urls()
        async with serving(tmp_path, containers) as api:
            found = await api.settled()
            assert found["EndpointStatus"] == "InService"
            assert api.urls() == before
        assert containers.started == ["endpoint/e/AllTraffic/0"]

    asyncio.run(whole())


def test_a_server_that_starts_again_goes_on_with_what_was_under_way(
    tmp_path: Path, containers: FakeContainers
) -> None:
    async def whole() -> None:
        async with serving(tmp_path, containers) as api:
            await deployed(api, "one", "two", READY_S="0.3")
            await api.settled()
            await api("UpdateEndpoint", EndpointName="e", EndpointConfigName="two")
        async with serving(tmp_path, containers) as api:
            found = await api.settled()
            assert (found["EndpointStatus"], found["EndpointConfigName"]) == ("InService", "two")
            assert [await name_at(api, url) for url in api.urls()] == ["two"]
        async with serving(tmp_path, containers) as api:
            await api.settled()
            async with asyncio.timeout(10):
                while len(containers.there) > 1:
                    await asyncio.sleep(0.01)

    asyncio.run(whole())


def test_containers_that_nobody_wrote_down_are_removed_at_the_start(
    tmp_path: Path, containers: FakeContainers
) -> None:
    (tmp_path / "endpoints" / "feedfeed").mkdir(parents=True)
    made = containers.start(
        ServerSpec(image="tiny:1", environment={}),
        owner="endpoint/old/AllTraffic/0",
        generation="feedfeed",
        folders={},
    )

    async def test(api: Api) -> None:
        assert made.id not in containers.there
        assert list((tmp_path / "endpoints").glob("*")) == []

    run(tmp_path, containers, test)


def test_a_container_that_ended_by_itself_is_started_again(
    tmp_path: Path, containers: FakeContainers
) -> None:
    async def test(api: Api) -> None:
        await deployed(api, "one")
        await api.settled()
        server = api.services.endpoints.pools("endpoint", "e")["AllTraffic"].servers[0]
        containers.die(server.container)

        async with asyncio.timeout(10):
            while "again endpoint/e/AllTraffic/0" not in containers.started:
                await asyncio.sleep(0.01)

        assert server.is_ready is False
        found = await api("DescribeEndpoint", EndpointName="e")
        assert found["ProductionVariants"][0]["CurrentInstanceCount"] == 0

    run(tmp_path, containers, test)


def test_a_container_that_somebody_removed_is_made_anew(
    tmp_path: Path, containers: FakeContainers
) -> None:
    async def test(api: Api) -> None:
        await deployed(api, "one")
        await api.settled()
        before = api.urls()
        containers.remove(next(iter(containers.there)))

        async with asyncio.timeout(10):
            while api.urls() == before:
                await asyncio.sleep(0.01)

        assert (await api.settled())["EndpointStatus"] == "InService"
        assert [await name_at(api, url) for url in api.urls()] == ["one"]

    run(tmp_path, containers, test)


def component(name: str = "c", **more: Any) -> dict[str, Any]:
    wanted = {"MinMemoryRequiredInMb": 128}
    return {
        "InferenceComponentName": name,
        "EndpointName": "e",
        "Specification": {"ModelName": "one", "ComputeResourceRequirements": wanted},
        "RuntimeConfig": {"CopyCount": 1},
        **more,
    }


async def bare_endpoint(api: Api) -> None:
    """Make an endpoint whose variant waits for components."""
    role = "arn:aws:iam::000000000000:role/packager"
    bare = {"VariantName": "v"}
    await api("CreateModel", **model_body("one"))
    await api("CreateEndpointConfig", **config_body("bare", bare, ExecutionRoleArn=role))
    await api("CreateEndpoint", EndpointName="e", EndpointConfigName="bare")
    assert (await api.settled())["EndpointStatus"] == "InService"


def test_a_component_has_as_many_containers_as_copies(
    tmp_path: Path, containers: FakeContainers
) -> None:
    async def test(api: Api) -> None:
        await bare_endpoint(api)
        assert containers.there == {}
        await api("CreateInferenceComponent", **component())
        found = await api.settled("c", "InferenceComponent")
        assert found["InferenceComponentStatus"] == "InService"
        assert (found["EndpointName"], found["VariantName"]) == ("e", "v")
        (first,) = api.urls("c", "inference-component")

        for copies in (3, 2, 0):
            runtime = {"CopyCount": copies}
            await api(
                "UpdateInferenceComponentRuntimeConfig",
                InferenceComponentName="c",
                DesiredRuntimeConfig=runtime,
            )
            found = await api.settled("c", "InferenceComponent")
            assert found["RuntimeConfig"]["CurrentCopyCount"] == copies
            urls = api.urls("c", "inference-component")
            assert len(urls) == copies
            assert copies == 0 or urls[0] == first

        with pytest.raises(ValidationRefused, match="it has inference components"):
            await api("DeleteEndpoint", EndpointName="e")
        await api("DeleteInferenceComponent", InferenceComponentName="c")
        async with asyncio.timeout(10):
            while (await api("ListInferenceComponents"))["InferenceComponents"]:
                await asyncio.sleep(0.01)
        await api("DeleteEndpoint", EndpointName="e")
        await api.gone()
        assert containers.there == {}

    run(tmp_path, containers, test)


def test_a_component_is_refused_where_the_variant_has_a_model(
    tmp_path: Path, containers: FakeContainers
) -> None:
    async def test(api: Api) -> None:
        await deployed(api, "one")
        await api.settled()

        with pytest.raises(ValidationRefused, match="has a model of its own"):
            await api("CreateInferenceComponent", **component())

    run(tmp_path, containers, test)


def test_components_are_listed_by_their_endpoint(
    tmp_path: Path, containers: FakeContainers
) -> None:
    async def test(api: Api) -> None:
        await bare_endpoint(api)
        await api("CreateInferenceComponent", **component())

        async def names(**query: str) -> list[str]:
            found = await api("ListInferenceComponents", **query)
            return [one["InferenceComponentName"] for one in found["InferenceComponents"]]

        assert await names(EndpointNameEquals="e", VariantNameEquals="v") == ["c"]
        assert await names(EndpointNameEquals="f") == []
        await api.settled("c", "InferenceComponent")

    run(tmp_path, containers, test)


def test_lists_filter_sort_and_go_on(tmp_path: Path, containers: FakeContainers) -> None:
    async def test(api: Api) -> None:
        for number in range(5):
            await api("CreateModel", **model_body(f"model-{number}"))
        page = await api("ListModels", SortBy="Name", SortOrder="Ascending", MaxResults=2)
        assert [one["ModelName"] for one in page["Models"]] == ["model-0", "model-1"]

        rest = await api(
            "ListModels",
            SortBy="Name",
            SortOrder="Ascending",
            MaxResults=100,
            NextToken=page["NextToken"],
        )

        assert [one["ModelName"] for one in rest["Models"]] == ["model-2", "model-3", "model-4"]
        assert "NextToken" not in rest
        later = await api("ListModels", CreationTimeAfter=time.time() + 60)
        assert later["Models"] == []
        found = await api("ListModels", NameContains="el-3")
        assert [one["ModelName"] for one in found["Models"]] == ["model-3"]

    run(tmp_path, containers, test)


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        ("DescribeModel", {"ModelName": "x"}),
        ("DeleteModel", {"ModelName": "x"}),
        ("DescribeEndpointConfig", {"EndpointConfigName": "x"}),
        ("DeleteEndpointConfig", {"EndpointConfigName": "x"}),
        ("DescribeEndpoint", {"EndpointName": "x"}),
        ("DeleteEndpoint", {"EndpointName": "x"}),
        ("UpdateEndpoint", {"EndpointName": "x", "EndpointConfigName": "y"}),
        ("CreateEndpoint", {"EndpointName": "x", "EndpointConfigName": "y"}),
        ("CreateEndpointConfig", config_body("x")),
        ("DescribeInferenceComponent", {"InferenceComponentName": "x"}),
        ("DeleteInferenceComponent", {"InferenceComponentName": "x"}),
        ("CreateInferenceComponent", component()),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_there_cannot_be_used(
    tmp_path: Path, containers: FakeContainers, operation: str, body: dict[str, Any]
) -> None:
    async def test(api: Api) -> None:
        with pytest.raises(ValidationRefused, match="Could not find"):
            await api(operation, **body)

    run(tmp_path, containers, test)


def test_the_log_of_a_container_is_a_stream_of_the_endpoints_group(
    tmp_path: Path, containers: FakeContainers
) -> None:
    async def test(api: Api) -> None:
        await deployed(api, "one")
        await api.settled()
        table = logs.operations(api.services)
        group = {"logGroupName": "/aws/sagemaker/Endpoints/e"}

        found = await table["FilterLogEvents"](group)

        (event,) = found["events"]
        assert event["message"] == "ValueError: no such weight"
        assert event["timestamp"] == 1795428000123
        assert event["logStreamName"] == "AllTraffic/000000000000"
        streams = await table["DescribeLogStreams"](group)
        assert [one["logStreamName"] for one in streams["logStreams"]] == [event["logStreamName"]]
        stream = {**group, "logStreamName": event["logStreamName"]}
        read = await table["GetLogEvents"](stream)
        assert [one["message"] for one in read["events"]] == ["ValueError: no such weight"]
        again = await table["GetLogEvents"]({**stream, "nextToken": read["nextForwardToken"]})
        assert (again["events"], again["nextForwardToken"]) == ([], "f/1")
        assert (await table["FilterLogEvents"]({**group, "startTime": 1795428000124}))[
            "events"
        ] == []
        with pytest.raises(LogMissing):
            await table["FilterLogEvents"]({"logGroupName": "/aws/sagemaker/Endpoints/other"})

    run(tmp_path, containers, test)


def test_the_log_of_an_endpoint_that_failed_is_kept(
    tmp_path: Path, containers: FakeContainers
) -> None:
    async def test(api: Api) -> None:
        await deployed(api, "one", FAIL="1")
        await api.settled()
        table = logs.operations(api.services)

        found = await table["FilterLogEvents"]({"logGroupName": "/aws/sagemaker/Endpoints/e"})

        assert [one["message"] for one in found["events"]] == ["ValueError: no such weight"]
        await api("DeleteEndpoint", EndpointName="e")
        await api.gone()
        assert list((tmp_path / "endpoints").iterdir()) == []

    run(tmp_path, containers, test)


def test_data_that_do_not_fit_on_the_disk_fail_the_endpoint_and_leave_nothing(
    tmp_path: Path, containers: FakeContainers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(data: ModelData, folder: Path, *_: object) -> None:
        folder.mkdir(parents=True)
        (folder / "half").write_bytes(b"a")
        if data.uri.endswith("/full"):
            raise OSError(errno.ENOSPC, "no space left on device")
        raise DiskTooSmall(3 * GIB, GIB, folder)

    monkeypatch.setattr(fleet, "fetch_data", fetch)

    async def test(api: Api) -> None:
        for name, told in (("large", "need 3.0 GiB of disk"), ("full", "no space left")):
            body = model_body(name)
            body["PrimaryContainer"]["ModelDataUrl"] = f"s3://bucket/{name}"
            await api("CreateModel", **body)
            await api("CreateEndpointConfig", **config_body(name))
            await api("CreateEndpoint", EndpointName=name, EndpointConfigName=name)
            found = await api.settled(name)
            assert found["EndpointStatus"] == "Failed"
            assert told in found["FailureReason"]
        assert not list((tmp_path / "endpoints").rglob("half"))

    run(tmp_path, containers, test)
