"""The wheel holds what a user needs and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--wheel-dir",
            str(out),
            ".",
        ],
        cwd=ROOT,
        check=True,
        timeout=300,
    )
    [wheel] = out.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def shipped(*directories: str) -> set[str]:
    """Tracked files of the repository below `directories`."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *directories], cwd=ROOT, check=True, capture_output=True
    )
    return set(listed.stdout.decode().strip("\0").split("\0"))


def test_every_tracked_file_of_the_packages_is_in_the_wheel(names: set[str]) -> None:
    assert shipped("packager", "artifact_cache") <= names


def test_templates_and_containers_travel_inside_the_package(names: set[str]) -> None:
    assert {f"packager/_share/{path}" for path in shipped("templates", "containers")} <= names


def test_nothing_else_is_installed(names: set[str]) -> None:
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"packager", "artifact_cache"}
    assert not [name for name in names if "__pycache__" in name or "/tests/" in name]


def test_the_licence_travels_along(names: set[str]) -> None:
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
