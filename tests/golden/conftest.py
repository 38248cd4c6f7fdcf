"""What golden tests share."""

from __future__ import annotations

import pytest


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether `--update-golden` was given: write files instead of comparing."""
    return bool(request.config.getoption("update_golden"))
