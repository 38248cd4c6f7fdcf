"""The option that rewrites golden files: `pytest tests/golden --update-golden`."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write golden files instead of comparing"
    )


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    # Not registered when pytest is started above this directory: then nothing is rewritten.
    return bool(request.config.getoption("update_golden", default=False))
