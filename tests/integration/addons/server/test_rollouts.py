"""Updates in steps, roll-backs, and endpoints that are deleted without an Engine."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from packager.core.errors import Unavailable
from tests.integration.addons.server.test_endpoints import Api
from tests.integration.addons.server.test_endpoints import api as api
from tests.integration.addons.server.test_endpoints import containers as containers
from tests.support.coroutines import eventually

pytestmark = pytest.mark.usefixtures("runner")
ALARMS = {"Alarms": [{"AlarmName": "slow"}]}


def policy(kind: str, wait_s: int, **more: Any) -> dict[str, Any]:
    routing = {"Type": kind, "WaitIntervalInSeconds": wait_s}
    size = {"Type": "CAPACITY_PERCENT", "Value": 50}
    if kind != "ALL_AT_ONCE":
        routing["CanarySize" if kind == "CANARY" else "LinearStepSize"] = size
    return {"BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": routing}, **more}


async def update(api: Api, **config: Any) -> None:
    await api("UpdateEndpoint", EndpointName="e", EndpointConfigName="two", DeploymentConfig=config)


async def asked(api: Api, count: int = 40) -> Counter[str]:
    """Return which models have answered so many requests."""
    pools = [api.services.endpoints.route("e")["AllTraffic"] for _ in range(count)]
    return Counter(await api.names(*(pool.servers[0].url for pool in pools)))


async def test_a_canary_takes_its_share_and_then_everything(api: Api) -> None:
    await api.serve("one", "two")
    config = policy("CANARY", 1, AutoRollbackConfiguration=ALARMS)
    await update(api, **config)
    await eventually(lambda: api.services.endpoints.shifted("e") == 0.5)

    found = await api("DescribeEndpoint", EndpointName="e")
    counts = await asked(api)

    (status,) = found["PendingDeploymentSummary"]["ProductionVariants"][0]["VariantStatus"]
    assert (found["EndpointStatus"], status["Status"]) == ("Updating", "ActivatingTraffic")
    assert status["StatusMessage"].startswith("50% of the requests; alarms are not evaluated here")
    assert min(counts["one"], counts["two"]) > 5
    settled = await api.settled()
    assert settled["LastDeploymentConfig"] == config
    assert await asked(api) == {"two": 40}
    await eventually(lambda: len(api.containers.there) == 1)


async def test_a_new_container_that_ends_while_it_bakes_is_rolled_back(api: Api) -> None:
    await api.serve("one", "two")
    await update(api, **policy("ALL_AT_ONCE", 60))
    await eventually(lambda: api.services.endpoints.shifted("e") == 1)
    assert await asked(api) == {"two": 40}
    (new,) = {one.id for one in api.containers.all()} - {
        one.container for one in api.pools()["AllTraffic"].servers
    }
    api.containers.die(new)

    found = await api.settled()

    assert (found["EndpointStatus"], found["EndpointConfigName"]) == ("InService", "one")
    assert "no such weight" in found["FailureReason"]
    assert await asked(api) == {"one": 40}
    assert len(api.containers.there) == 1


def broken(*_: Any, **__: Any) -> Any:
    raise Unavailable("no Docker Engine answers")


async def test_an_endpoint_is_deleted_without_an_engine_and_its_container_when_that_is_back(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.serve("one")
    with monkeypatch.context() as patch:
        for name in ("all", "look", "stop", "remove"):
            patch.setattr(api.containers, name, broken)
        await api.delete()
        assert len(api.containers.there) == 1

    await eventually(lambda: api.containers.there == {})
