"""When a container that is to end has no request left."""

from __future__ import annotations

import asyncio

import pytest

from packager.addons.server.endpoints.traffic import TrafficServer

pytestmark = pytest.mark.usefixtures("runner")


async def test_a_container_is_drained_once_its_last_request_has_ended() -> None:
    server = TrafficServer("a", "http://a", "v")
    with server.leased():
        with server.leased():
            waiting = asyncio.create_task(server.drained(5.0))
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done()

    assert await waiting


async def test_draining_ends_when_its_time_is_over() -> None:
    server = TrafficServer("a", "http://a", "v")
    with server.leased():
        assert not await server.drained(0.0)
