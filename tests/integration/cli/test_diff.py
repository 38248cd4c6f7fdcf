"""`packager diff`: what is pulled again, and with which status it ends."""

from __future__ import annotations

import json

import pytest

from tests.support.commandline import TINY, Packager

BUILD = ("build", "--model", str(TINY), "--instance", "local", "--base", "scratch", "--quiet")


@pytest.fixture
def two(packager: Packager) -> Packager:
    packager(*BUILD, "--output", "oci:a")
    packager(*BUILD, "--max-batch", "7", "--output", "oci:b")
    return packager


def test_another_batch_size_pulls_the_configuration_only(two: Packager) -> None:
    done = two("diff", "oci:a", "oci:b", "--format", "json", status=0)

    found = json.loads(done.out)
    assert [layer["role"] for layer in found["layers"] if layer["state"] == "new"] == ["config"]
    assert found["pull"] == found["layers"][-1]["size"]
    assert {"what": "record request.max_batch", "before": None, "after": 7} in found["changes"]


def test_the_text_begins_with_layers_and_ends_with_settings(two: Packager) -> None:
    done = two("diff", "oci:a", "oci:b", status=0)

    assert "1 of 5 layers" in done.out
    assert "pulls it" in done.out
    assert "serving configuration: changed" in done.out
    assert done.out.splitlines()[-1] == "record request.max_batch  -       7"


@pytest.mark.parametrize(("second", "status"), [("oci:a", 0), ("oci:b", 1)])
def test_the_exit_code_tells_only_when_asked(two: Packager, second: str, status: int) -> None:
    assert two("diff", "oci:a", second, "--exit-code").status == status
    assert two("diff", "oci:a", second).status == 0
