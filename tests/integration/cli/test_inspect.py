"""`packager inspect` and `packager diff` on layouts."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.commandline import TINY, Packager
from tests.support.doubles.registry import FakeRegistry

BUILD = ("build", "--model", str(TINY), "--instance", "local", "--base", "scratch", "--quiet")


def test_inspect_tells_layers_by_role_and_how_the_image_was_made(packager: Packager) -> None:
    packager(*BUILD, "--output", "oci:out")

    found = packager("inspect", "oci:out", "--format", "json", status=0).document
    assert [layer["role"] for layer in found["layers"]] == ["weights"] * 3 + ["model", "config"]
    assert found["size"] == sum(found["roles"].values())
    assert found["made"]["record"]["request"]["instance"] == "local"
    assert found["runtime"]["entrypoint"]


def test_inspect_prints_a_table_for_people(packager: Packager) -> None:
    packager(*BUILD, "--output", "oci:out")

    done = packager("inspect", "oci:out", status=0)

    assert "is         an image for linux/amd64" in done.out
    assert "packager: weights model-00001-of-00003.safetensors (2.9 MB)" in done.out


def test_layers_shared_with_other_images_are_marked(packager: Packager) -> None:
    packager(*BUILD, "--output", "oci:a")
    packager(*BUILD, "--max-batch", "7", "--output", "oci:b")
    arguments = ("inspect", "oci:a", "--shared-with", "oci:b", "--shared-with", "oci:a")

    found = json.loads(packager(*arguments, "--format", "json").out)

    assert [layer["shared_with"] for layer in found["layers"]] == (
        [["oci:b", "oci:a"]] * 4 + [["oci:a"]]
    )
    without_config = found["size"] - found["roles"]["config"]
    assert [other["size"] for other in found["shared_with"]] == [without_config, found["size"]]
    [config] = [one for one in packager(*arguments).out.splitlines() if one.startswith("config ")]
    assert config.endswith(" oci:a")


def test_repositories_that_have_the_layers_too_are_told(packager: Packager, tmp_path: Path) -> None:
    here = {"XDG_STATE_HOME": str(tmp_path / "state")}
    with FakeRegistry() as registry:
        for name, batch in (("team/a", "7"), ("team/b", "8")):
            output = ("--max-batch", batch, "--output", f"{registry.host}/{name}:1")
            assert packager(*BUILD, *output, env=here).status == 0
        inspect = ("inspect", f"{registry.host}/team/a:1")

        found = json.loads(packager(*inspect, "--format", "json", env=here).out)
        text = packager(*inspect, env=here).out

    other = f"{registry.host}/team/b"
    assert [layer["seen_in"] for layer in found["layers"]] == [[other]] * 4 + [[]]
    assert found["seen_in"] == {other: found["size"] - found["roles"]["config"]}
    assert f"seen       8.6 MB in {other}" in text


def test_files_of_an_image_are_listed_as_a_container_sees_them(packager: Packager) -> None:
    packager(*BUILD, "--output", "oci:out")
    listed = ("inspect", "oci:out", "--files")

    lines = packager(*listed, "/opt/packager/serving", status=0).out.splitlines()
    found = packager(*listed, "/", "--format", "json", status=0).document["files"]

    assert [line.split()[0] for line in lines] == [
        "mode",
        "drwxr-xr-x",
        *["-rw-r--r--"] * (len(lines) - 2),
    ]
    sizes = {one["path"]: one["size"] for one in found}
    assert sizes["/opt/packager/model/config.json"] == (TINY / "config.json").stat().st_size
    assert "has nothing at '/opt/nowhere'" in packager(*listed, "/opt/nowhere", status=66).err
