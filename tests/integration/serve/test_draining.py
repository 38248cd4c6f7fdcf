"""When a container that is to end has no request left."""

from __future__ import annotations

import asyncio

from packager.serve.endpoints.traffic import Server


def test_a_container_is_drained_once_its_last_request_has_ended() -> None:
    async def drain() -> list[str]:
        server = Server("a", "http://a", "v")
        told: list[str] = []

        async def wait() -> None:
            assert await server.drained(5.0)
            told.append("drained")

        with server.leased():
            with server.leased():
                waiting = asyncio.create_task(wait())
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            told.append("one has ended")
        await waiting
        return told

    assert asyncio.run(drain()) == ["one has ended", "drained"]


def test_draining_ends_when_its_time_is_over() -> None:
    async def drain() -> bool:
        server = Server("a", "http://a", "v")
        with server.leased():
            return await server.drained(0.0)

    assert asyncio.run(drain()) is False
