"""Tests that are coroutines: a conftest imports the hook and the fixture, tests use the fixture."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator

import pytest


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """Run a coroutine test, and what its fixtures begin and end, in one loop."""
    with asyncio.Runner() as found:
        yield found


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function to its end."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    given = {name: pyfuncitem.funcargs[name] for name in names}
    pyfuncitem.funcargs["runner"].run(pyfuncitem.obj(**given))
    return True


async def eventually(happened: Callable[[], bool]) -> None:
    """Wait for something; fail where it does not happen."""
    async with asyncio.timeout(20):
        while not happened():
            await asyncio.sleep(0.01)
