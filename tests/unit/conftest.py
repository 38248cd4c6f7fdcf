"""No test of this tree starts a process, opens a socket or sleeps: see `tests.support.purity`."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.support.purity import pure


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None]:
    """Refuse it to fixtures."""
    with pure():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    """Refuse it to tests."""
    with pure():
        return (yield)
