"""The wheel and the sdist hold what a user needs and nothing else."""

from __future__ import annotations

import email
import re
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from packager.core.version import __version__
from tests.support.commandline import TINY, packager_in
from tests.support.places import ROOT
from tests.support.processes import run_program, run_python
from tests.support.reference_pages import script
from tests.support.wheels import (
    SUPPORTED,
    Distribution,
    build_distribution,
    digest_of_use,
    find_python,
    new_environment,
    pip_install,
    without_settings_of_python,
)

DATA = f"model_packager-{__version__}.data/data/"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Distribution:
    return build_distribution(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def names(made: Distribution) -> set[str]:
    return set(zipfile.ZipFile(made.wheel).namelist())


def shipped(*directories: str) -> set[str]:
    """Tracked files of the repository below `directories`."""
    listed = run_program("git", "ls-files", "-z", "--", *directories)
    return set(listed.stdout.strip("\0").split("\0"))


def test_every_tracked_file_of_the_packages_is_in_the_wheel(names: set[str]) -> None:
    assert shipped("packager", "artifact_cache") <= names
    assert {"packager/py.typed", "artifact_cache/py.typed"} <= names


def test_templates_and_containers_travel_inside_the_package(names: set[str]) -> None:
    assert {f"packager/_share/{path}" for path in shipped("templates", "containers")} <= names


def test_pages_and_completion_stand_where_man_and_shells_look(names: set[str]) -> None:
    pages = {f"{DATA}share/man/man1/{page.name}" for page in script.MAN_PAGES}
    completion = {
        f"{DATA}share/bash-completion/completions/packager",
        f"{DATA}share/fish/vendor_completions.d/packager.fish",
        f"{DATA}share/zsh/site-functions/_packager",
    }

    assert {name for name in names if name.startswith(DATA)} == pages | completion


def test_a_wheel_of_a_clone_needs_nothing_but_hatchling(tmp_path: Path) -> None:
    """As pip builds it: in an environment of its own, from a tree that nobody made pages in."""
    clone = tmp_path / "clone"
    run_program("git", "clone", "-q", "--depth", "1", f"file://{ROOT}", str(clone))
    (clone / "hatch_build.py").write_bytes((ROOT / "hatch_build.py").read_bytes())
    python = new_environment(Path(sys.executable), tmp_path / "alone")
    [site] = (tmp_path / "alone/lib").glob("python*/site-packages")
    for name in ("hatchling", "packaging", "pathspec", "pluggy", "trove_classifiers"):
        [there] = [place for place in map(Path, sys.path) if (place / name).is_dir()]
        (site / name).symlink_to(there / name)

    build = "from hatchling.build import build_wheel; print(build_wheel('out'))"
    done = run_program(str(python), "-c", build, cwd=clone)

    assert done.stdout.strip().endswith(".whl")


def test_nothing_else_is_installed(names: set[str]) -> None:
    tops = {name.split("/")[0] for name in names}
    others = {top for top in tops if not top.endswith((".dist-info", ".data"))}

    assert others == {"packager", "artifact_cache"}
    assert not [name for name in names if "__pycache__" in name or "/tests/" in name]


def test_the_licences_travel_along(names: set[str]) -> None:
    licences = {name.partition("/licenses/")[2] for name in names if "/licenses/" in name}

    assert licences == {"LICENSE", "packager/catalog/data/samples.LICENSE.txt"}


def test_the_sdist_has_tracked_files_and_no_tests(made: Distribution) -> None:
    with tarfile.open(made.sdist) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}

    pages = {page.relative_to(ROOT).as_posix() for page in script.MAN_PAGES}
    assert found - shipped() == {"PKG-INFO", *pages}
    assert shipped("packager", "artifact_cache", "templates", "containers", "docs") <= found
    assert not [name for name in found if name.split("/")[0] in {"tests", "examples", "scripts"}]


def test_an_index_would_show_the_description(made: Distribution) -> None:
    words = ("-m", "twine", "--no-color", "check", "--strict", made.wheel, made.sdist)
    done = run_python(*words, status=None)

    assert re.findall(r"PASSED|FAILED|WARNING", done.stdout) == ["PASSED", "PASSED"], done.stdout


def test_the_metadata_names_the_pythons_that_are_tested(made: Distribution) -> None:
    with zipfile.ZipFile(made.wheel) as archive:
        text = archive.read(f"model_packager-{__version__}.dist-info/METADATA").decode()
    told = email.message_from_string(text)

    named = [
        one.rpartition(" ")[2]
        for one in told.get_all("Classifier") or ()
        if re.search(r"Python :: 3\.\d+$", one)
    ]
    assert tuple(named) == SUPPORTED
    assert told["Requires-Python"] == f">={SUPPORTED[0]}"
    assert (told["License-Expression"], told["Description-Content-Type"]) == (
        "Apache-2.0",
        "text/markdown",
    )


@pytest.mark.capability("package")
def test_the_wheel_works_in_a_fresh_environment(made: Distribution, tmp_path: Path) -> None:
    """Its dependencies are those of this environment: no index is asked."""
    python = new_environment(Path(sys.executable), tmp_path / "fresh")
    installed = pip_install(python, "--no-deps", "--no-index", str(made.wheel))
    assert installed.returncode == 0, installed.stderr
    [site] = (tmp_path / "fresh/lib").glob("python*/site-packages")
    places = [place for place in sys.path if place.endswith("site-packages")]
    (site / "dependencies.pth").write_text("\n".join(places))
    use = tmp_path / "use"
    use.mkdir()

    digest = digest_of_use(python, use, without_settings_of_python())

    here = packager_in(use)(
        *("build", "--model", str(TINY), "--instance", "local"),
        *("--base", "scratch", "--output", "oci:here"),
    )
    assert here.out.endswith(f"@{digest}\n"), here.err
    assert (tmp_path / "fresh/share/man/man1/packager-build.1").is_file()


@pytest.mark.extended
def test_an_older_python_is_refused_by_name(made: Distribution, tmp_path: Path) -> None:
    python = find_python("3.10")
    if python is None:
        pytest.skip("there is no Python 3.10 here")
    fresh = new_environment(python, tmp_path / "old")

    refused = pip_install(fresh, "--no-deps", "--no-index", str(made.wheel))

    assert refused.returncode != 0
    assert "requires a different Python" in refused.stderr
