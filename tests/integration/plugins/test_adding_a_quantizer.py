"""A quantizer of another package, as docs/adding-a-quantizer.md has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.commandline import TINY, packager_in
from tests.support.documented_packages import stated_count, write_package

PAGE = "adding-a-quantizer.md"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    write_package(PAGE, tmp_path / "site")
    return {"PYTHONPATH": str(tmp_path / "site"), "PACKAGER_TOOLS": str(tmp_path / "tools")}


def test_a_quantizer_is_as_many_files_as_its_page_says(tmp_path: Path) -> None:
    assert len(write_package(PAGE, tmp_path / "site")) == stated_count(PAGE) == 4


def test_quantizer_and_tool_are_listed(tmp_path: Path, env: dict[str, str]) -> None:
    run = packager_in(tmp_path)

    assert "fewer_bits     from fewer-bits" in run("list", "quantizers", env=env).out
    assert "fewer-bits" in run("tools", "list", env=env).out


def test_its_weights_are_in_the_image_and_a_hit_the_next_time(
    tmp_path: Path, env: dict[str, str]
) -> None:
    run = packager_in(tmp_path)
    build = ("build", "--model", str(TINY), "--instance", "local", "--base", "scratch")

    plain = run(*build, "--output", "oci:plain", "--record", "plain.json", env=env)
    first = run(
        *build, "--quantize", "fewer-bits", "--output", "oci:out", "--record", "first.json", env=env
    )
    second = run(
        *build, "--quantize", "fewer-bits", "--output", "oci:out", "--require-cached", env=env
    )

    assert plain.status == first.status == second.status == 0, first.err + second.err
    assert first.out == second.out
    assert weights_of(tmp_path / "first.json") != weights_of(tmp_path / "plain.json")


def weights_of(record: Path) -> list[Any]:
    layers = json.loads(record.read_text())["layers"]
    return [layer["digest"] for layer in layers if layer["role"] == "weights"]
