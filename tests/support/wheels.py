"""The built wheel, interpreters that it may be installed on, and what an installation must do."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packager.cli.doctor.installation import data_digest
from packager.core.version import __version__
from tests.support.commandline import TINY
from tests.support.places import ROOT

SUPPORTED = ("3.11", "3.12", "3.13", "3.14")
# Where systems, pyenv, uv, manylinux and GitHub's runners put interpreters beside those on PATH.
USUAL_PLACES = (
    "/usr/bin/python{version}",
    "/usr/local/bin/python{version}",
    "~/.pyenv/versions/{version}.*/bin/python",
    "~/.local/share/uv/python/*-{version}.*/bin/python",
    "/opt/python/cp{digits}-cp{digits}/bin/python",
    "/opt/hostedtoolcache/Python/{version}.*/x64/bin/python",
)


@dataclass(frozen=True, slots=True)
class Distribution:
    """What `python -m build` made."""

    wheel: Path
    sdist: Path


def build_distribution(out: Path) -> Distribution:
    """Build the sdist, and the wheel from it, with the tools of this environment.

    The man pages are made first, as for a release: git ignores them.
    """
    pages = [sys.executable, str(ROOT / "scripts" / "make-reference"), "--man"]
    subprocess.run(pages, check=True, timeout=300, stdout=subprocess.DEVNULL)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(command, check=True, timeout=300, stdout=subprocess.DEVNULL)
    [wheel], [sdist] = out.glob("*.whl"), out.glob("*.tar.gz")
    return Distribution(wheel, sdist)


def find_python(version: str) -> Path | None:
    """Return an interpreter of a version that runs here, or None."""
    for path in _candidates(version):
        asked = [path, "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=60)
        if done.stdout.strip() == version:
            return path
    return None


def _candidates(version: str) -> Iterator[Path]:
    if found := shutil.which(f"python{version}"):
        yield Path(found)
    for place in USUAL_PLACES:
        path = Path(place.format(version=version, digits=version.replace(".", ""))).expanduser()
        yield from sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))


def new_environment(python: Path, place: Path) -> Path:
    """Make a virtual environment without anything in it; return its interpreter."""
    subprocess.run(
        [python, "-m", "venv", "--without-pip", place],
        check=True,
        timeout=120,
        env=without_settings_of_python(),
    )
    return place / "bin/python"


def pip_install(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Install into the environment of `python` with this environment's pip."""
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    return subprocess.run(
        [*command, "--no-compile", *arguments], capture_output=True, text=True, timeout=500
    )


def without_settings_of_python() -> dict[str, str]:
    """Return the environment of a shell in which nobody set anything of Python's."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def digest_of_use(python: Path, place: Path, environment: Mapping[str, str]) -> str:
    """Use an installation as a newcomer does, outside the checkout; return the image's digest."""
    shutil.copytree(TINY, place / "tiny-llama")

    def packager(*arguments: str) -> str:
        done = subprocess.run(
            [python.with_name("packager"), *arguments],
            cwd=place,
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    told = json.loads(packager("version", "--json"))
    assert told["packager"] == __version__
    assert not Path(told["place"]).is_relative_to(ROOT)
    assert told["data"]["sha256"] == data_digest(), "a shipped file is missing or another"

    model = ("--model", "tiny-llama", "--instance")
    assert "ml.g5.xlarge" in packager("list", "instances", "g5.xlarge")
    page = packager("plan", *model, "ml.g5.xlarge", "--format", "html")
    assert page.startswith("<!doctype html>")
    assert "ml.g5.xlarge" in page
    assert "_packager" in packager("completion", "bash")
    built = packager("build", *model, "local", "--base", "scratch", "--output", "oci:out")
    found = re.search(r"@(sha256:[0-9a-f]{64})\n$", built)
    assert found, built
    assert "tiny-llama" in packager("inspect", "oci:out")
    return found[1]
