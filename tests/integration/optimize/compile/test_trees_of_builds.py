"""Trees of builds with steps: quantized weights and compiled files, as the image has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.images.trees.building import files_of_image
from tests.support.commandline import TINY, packager_in
from tests.support.demo_builds import environment_of
from tests.support.demo_builds import tools_dir as tools_dir
from tests.support.places import files_below
from tests.support.tool_steps import OUTSIDE


@pytest.mark.extended
def test_quantized_and_compiled_files_are_the_images(tmp_path: Path, tools_dir: Path) -> None:
    packager = packager_in(tmp_path)
    env = environment_of(tmp_path, tools_dir)
    common = ("build", "--model", str(TINY), "--instance", "local")
    packager(*common, "--base", "scratch", "--output", "oci:base", env=env, status=0)
    steps = ("--quantize", "demo-copy", "--compile", "demo_compiler", "--base", "oci:base")

    # Where weights are mounted the compiled files are made for that; so they are for a tree alone.
    mounted = ("--weights", "mounted", "--output", "oci:server", "--output", "dir:beside")
    both = packager(*common, *steps, *mounted, env=env)
    alone = packager(
        *(*common, *steps, "--output", "dir:alone", "--record", "alone.json", "--require-cached"),
        env=env,
    )
    baked = packager(
        *(*common, "--quantize", "demo-copy", "--base", "scratch"),
        *("--output", "oci:baked", "--output", "dir:quantized"),
        env=env,
    )

    assert [done.status for done in (both, alone, baked)] == [0, 0, 0], both.err + alone.err
    tree = files_below(tmp_path / "alone")
    assert tree == files_below(tmp_path / "beside")
    server = files_of_image(tmp_path / "server")
    for directory in ("compiled", "serving"):
        held = {path: data for path, data in tree.items() if path.startswith(f"{directory}/")}
        assert held
        for path, data in held.items():
            assert server[f"/opt/packager/{path}"] == data
    model = {path: data for path, data in tree.items() if "/" not in path}
    del model["packager-tree.json"]
    image = files_of_image(tmp_path / "baked")
    assert model == {
        path.removeprefix("/opt/packager/model/"): data
        for path, data in image.items()
        if path.startswith("/opt/packager/model/")
    }
    manifest = json.loads(tree["packager-tree.json"])
    assert {"tree": "compiled", "container": "/opt/packager/compiled"} in manifest["mounts"]
    [written] = json.loads((tmp_path / "alone.json").read_text())["trees"]
    assert written["files"] == len(tree) - 1
    assert written["mounts"] == {one["container"]: one["tree"] for one in manifest["mounts"]}
    shown = [line.split()[-2:] for line in alone.err.splitlines() if " /opt/" in line]
    assert [[place.removeprefix("dir:"), at] for place, at in shown] == [
        [str(tmp_path / "alone"), "/opt/ml/model"],
        [f"{tmp_path}/alone/compiled", "/opt/packager/compiled"],
        [f"{tmp_path}/alone/serving", "/opt/packager/serving"],
    ]
    # Every directory that the container is told of is one that is mounted.
    told = [*manifest["container"]["env"].values(), *manifest["container"].get("entrypoint", ())]
    for place in (word for text in told for word in text.split() if word.startswith("/opt/")):
        assert any(place.startswith(at) for at in written["mounts"]), place


def test_baked_weights_and_a_tree_share_no_compiled_files(tmp_path: Path, tools_dir: Path) -> None:
    packager = packager_in(tmp_path)
    env = {"PYTHONPATH": str(OUTSIDE), "PACKAGER_TOOLS": str(tools_dir)}
    common = ("build", "--model", str(TINY), "--instance", "local")
    packager(*common, "--base", "scratch", "--output", "oci:base", env=env)

    done = packager(
        *(*common, "--compile", "demo_compiler", "--base", "oci:base"),
        *("--output", "oci:image", "--output", "dir:tree"),
        env=env,
    )

    assert (done.status, done.out) == (2, "")
    assert "compiled files are made for one place of the model" in done.err
    assert "add --weights mounted" in done.err
    assert not (tmp_path / "tree").exists()
