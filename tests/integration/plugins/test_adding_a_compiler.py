"""A compiler of another package, as docs/adding-a-compiler.md has it."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.commandline import TINY, packager_in
from tests.support.documented_packages import stated_count, write_package

PAGE = "adding-a-compiler.md"
COMMON = ("--model", str(TINY), "--instance", "local")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    write_package(PAGE, tmp_path / "site")
    return {"PYTHONPATH": str(tmp_path / "site"), "PACKAGER_TOOLS": str(tmp_path / "tools")}


def test_a_compiler_is_as_many_files_as_its_page_says(tmp_path: Path) -> None:
    assert len(write_package(PAGE, tmp_path / "site")) == stated_count(PAGE) == 4


def test_compiler_and_tool_are_listed(tmp_path: Path, env: dict[str, str]) -> None:
    run = packager_in(tmp_path)

    assert "graph_notes   from graph-notes" in run("list", "compilers", env=env).out
    assert "graph-notes" in run("tools", "list", env=env).out


def test_what_it_compiles_is_in_the_image_and_a_hit_the_next_time(
    tmp_path: Path, env: dict[str, str]
) -> None:
    run = packager_in(tmp_path)
    run("build", *COMMON, "--base", "scratch", "--output", "oci:base", env=env)
    build = ("build", *COMMON, "--base", "oci:base", "--compile", "graph_notes")

    first = run(*build, "--output", "oci:out", "--record", "record.json", env=env)
    second = run(*build, "--output", "oci:out", "--require-cached", env=env)

    assert first.status == second.status == 0, first.err + second.err
    assert first.out == second.out
    record = json.loads((tmp_path / "record.json").read_text())
    [layer] = [layer for layer in record["layers"] if layer["role"] == "compiled"]
    assert notes_in(tmp_path / "out", layer["digest"]) == {"model_type": "llama", "tp": 1}


def notes_in(layout: Path, digest: str) -> Any:
    with tarfile.open(layout / "blobs/sha256" / digest.removeprefix("sha256:")) as layer:
        file = layer.extractfile("opt/packager/compiled/notes.json")
        assert file is not None
        return json.load(file)
