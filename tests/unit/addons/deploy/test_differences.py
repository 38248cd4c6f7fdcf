"""Differences between what is there and what is wanted."""

from __future__ import annotations

import json
from typing import Any

from packager.addons.deploy.sagemaker.differences import differences
from tests.support.cases import cases


@cases("compared")
def test_only_what_is_wanted_is_compared(
    there: dict[str, Any], wanted: dict[str, Any], found: str
) -> None:
    assert json.dumps([*differences(there, wanted)]) == found
