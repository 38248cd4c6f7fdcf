"""`packager inspect` and `packager diff` on layouts."""

from __future__ import annotations

import json
from pathlib import Path

from tests.commandline import TINY, Packager

BUILD = ("build", "--model", str(TINY), "--instance", "local", "--base", "scratch", "--quiet")


def test_inspect_tells_layers_by_role_and_how_the_image_was_made(packager: Packager) -> None:
    packager(*BUILD, "--output", "oci:out")

    done = packager("inspect", "oci:out", "--format", "json")

    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert [layer["role"] for layer in found["layers"]] == ["weights"] * 3 + ["model", "config"]
    assert found["size"] == sum(found["roles"].values())
    assert found["made"]["record"]["request"]["instance"] == "local"
    assert found["runtime"]["entrypoint"]


def test_inspect_prints_a_table_for_people(packager: Packager) -> None:
    packager(*BUILD, "--output", "oci:out")

    done = packager("inspect", "oci:out")

    assert done.status == 0, done.err
    assert "is         an image for linux/amd64" in done.out
    assert "packager: weights model-00001-of-00003.safetensors (2.9 MB)" in done.out


def test_layers_shared_with_another_image_are_marked(packager: Packager) -> None:
    packager(*BUILD, "--output", "oci:a")
    packager(*BUILD, "--max-batch", "7", "--output", "oci:b")

    found = json.loads(
        packager("inspect", "oci:a", "--shared-with", "oci:b", "--format", "json").out
    )

    assert [layer["shared"] for layer in found["layers"]] == [True] * 4 + [False]
    assert found["shared_with"]["size"] == found["size"] - found["roles"]["config"]


def test_an_image_that_is_not_there_is_not_found(packager: Packager, tmp_path: Path) -> None:
    assert packager("inspect", "oci:nothing").status == 66
