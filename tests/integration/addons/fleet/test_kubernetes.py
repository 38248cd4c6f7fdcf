"""A plan as Kubernetes Jobs: valid for three versions, and what they would run is run here."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.commandline import TINY, packager_in
from tests.support.tool_steps import OUTSIDE
from tests.unit.addons.fleet.test_kubernetes import container


@pytest.mark.extended
def test_a_rendered_pod_fills_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(OUTSIDE))
    monkeypatch.setenv("PACKAGER_TOOLS", str(tmp_path / "tools"))
    run: Callable[..., Any] = packager_in(tmp_path)
    grid = {
        "defaults": {"model": str(TINY), "instance": "local", "family": "vllm"},
        "axes": {"quantize": ["demo-copy,seed=1", "demo-copy,seed=2"]},
    }
    (tmp_path / "grid.json").write_text(json.dumps(grid))
    run("warm", "plan", "grid.json", "--output", "plan.json")
    shared = tmp_path / "shared"
    rendered = run(
        *("warm", "render", "kubernetes", "plan.json", "--image", "packager:1"),
        *("--cache-shared", f"dir:{shared}"),
    )
    assert rendered.status == 0, rendered.err
    assert "pods need a --claim" in rendered.err
    config_map, pods = yaml.safe_load_all(rendered.out)

    mounted = tmp_path / "etc"
    mounted.mkdir()
    (mounted / "plan.json").write_text(config_map["data"]["plan.json"])
    own = {one["name"]: one["value"] for one in container(pods)["env"]}
    own = {name: value.replace("/var/cache", str(tmp_path)) for name, value in own.items()}
    own["PACKAGER_TOOLS"] = os.environ["PACKAGER_TOOLS"]
    args = [
        word.replace("/etc/packager-warm", str(mounted)).replace("$(JOB_COMPLETION_INDEX)", "1")
        for word in container(pods)["args"]
    ]
    assert container(pods)["command"] == ["packager"]

    said = run(*args, env=own, status=0).document
    wanted = json.loads(config_map["data"]["plan.json"])["jobs"][1]
    assert (said["key"], said["reused"]) == (wanted["key"], False)
    elsewhere = run(
        *("warm", "plan", "grid.json", "--format", "json", "--cache-shared", f"dir:{shared}"),
        *("--cache-dir", str(tmp_path / "elsewhere")),
    )
    assert [hit["key"] for hit in json.loads(elsewhere.out)["hits"]] == [wanted["key"]]
