"""`packager tools`, as a user of another package's tool runs it."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from tests.support.commandline import Packager
from tests.support.tool_steps import OUTSIDE


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(OUTSIDE), "PACKAGER_TOOLS": str(tmp_path / "tools")}


@pytest.mark.extended
def test_a_tool_is_installed_listed_and_removed(packager: Packager, env: dict[str, str]) -> None:
    def state() -> str:
        listed = json.loads(packager("tools", "list", "--format", "json", env=env).out)
        return str(next(one["state"] for one in listed if one["name"] == "demo-tool"))

    place = packager("tools", "path", "demo-tool", env=env).out.strip()
    assert state() == "not installed"

    assert packager("tools", "install", "demo-tool", env=env).out.strip() == f"{place}/bin/python"
    assert state() == "installed"

    assert packager("tools", "remove", "demo-tool", env=env).out.strip() == place
    assert state() == "not installed"
    assert not Path(place).exists()


def test_the_schemas_of_the_protocol_are_printed(packager: Packager) -> None:
    schemas = json.loads(packager("tools", "schema").out)

    jsonschema.validate({"event": "progress", "message": "layer", "done": 1}, schemas["event"])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"error": {"class": "tired", "message": ""}}, schemas["result"])
