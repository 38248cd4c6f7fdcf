"""A serving family of another package, as docs/adding-a-family.md has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.commandline import TINY, packager_in
from tests.support.documented_packages import stated_count, write_package

PAGE = "adding-a-family.md"
MODEL = ("--model", str(TINY), "--instance", "ml.g5.12xlarge")
DEMO = ("--family", "demo", "--catalog", "site/catalog.toml")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    write_package(PAGE, tmp_path / "site")
    return {"PYTHONPATH": str(tmp_path / "site")}


def test_a_family_is_as_many_files_as_its_page_says(tmp_path: Path) -> None:
    assert len(write_package(PAGE, tmp_path / "site")) == stated_count(PAGE) == 3


def test_it_and_its_images_are_listed(tmp_path: Path, env: dict[str, str]) -> None:
    run = packager_in(tmp_path)

    families = run("list", "families", "--format", "json", env=env)
    images = run("list", "containers", *DEMO, "--format", "json", env=env)

    assert {"name": "demo", "what": "from demo-family"} in json.loads(families.out)
    [image] = json.loads(images.out)
    assert (image["family"], image["engine_version"]) == ("demo", "1.0")


def test_it_is_planned_with_what_its_traits_say(tmp_path: Path, env: dict[str, str]) -> None:
    """A pipeline is its own word; what a full server does is no guess from its name."""
    run = packager_in(tmp_path)

    done = run("plan", *MODEL, *DEMO, "--pp-degree", "2", "--format", "json", env=env)

    assert done.status == 0, done.err
    plan: dict[str, Any] = json.loads(done.out)
    assert plan["pp_degree"] == 2
    assert plan["container"]["family"] == "demo"
    assert plan["capacity"]["beyond"] == "more are refused with status 503"


def test_what_its_traits_do_not_say_is_refused_in_its_name(
    tmp_path: Path, env: dict[str, str]
) -> None:
    done = packager_in(tmp_path)("plan", *MODEL, *DEMO, "--dp-degree", "2", env=env)

    assert done.status != 0
    assert "Demo 1.0 has no data parallelism" in done.err


def test_a_build_renders_its_variables(tmp_path: Path, env: dict[str, str]) -> None:
    run = packager_in(tmp_path)

    done = run(
        *("build", *MODEL, *DEMO, "--tp-degree", "2", "--max-total-tokens", "512"),
        *("--engine-option", "demo-color=blue", "--base", "scratch", "--output", "oci:out"),
        env=env,
    )

    assert done.status == 0, done.err
    assert environment(tmp_path / "out") == [
        "DEMO_COLOR=blue",
        "DEMO_LENGTH=512",
        "DEMO_MODEL=/opt/packager/model",
        "DEMO_SPLIT=2x1",
    ]


def test_rows_of_a_family_that_is_not_installed_break_nothing_else(tmp_path: Path) -> None:
    write_package(PAGE, tmp_path / "site")

    done = packager_in(tmp_path)("plan", *MODEL, "--catalog", "site/catalog.toml")

    assert done.status == 0, done.err
    assert "are of family 'demo', which no installed package has; they are left out" in done.err


def environment(layout: Path) -> list[str]:
    """Return the variables of the one image of a layout."""

    def blob(digest: str) -> dict[str, Any]:
        read: dict[str, Any] = json.loads((layout / "blobs/sha256" / digest[7:]).read_text())
        return read

    [entry] = json.loads((layout / "index.json").read_text())["manifests"]
    config = blob(blob(entry["digest"])["config"]["digest"])
    return sorted(config["config"]["Env"])
