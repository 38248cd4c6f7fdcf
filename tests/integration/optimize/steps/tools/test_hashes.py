"""Environments from locks: other files than the lock names are refused, or said and kept apart."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from packager.cli.commands.tools import tools
from packager.cli.wiring.settings import Settings
from packager.core.errors import ToolUnavailable
from packager.optimize.steps.tools.environments import MADE, Environments
from packager.optimize.steps.tools.installers import ALLOW_UNHASHED, PackagesDiffer
from tests.support.cases import cases
from tests.support.tool_steps import HELPER
from tests.support.workers import load
from tests.unit.optimize.steps.tools.test_environments import own, wheel

# One process makes the packages of pip that their environments are given.
pytestmark = [pytest.mark.extended, pytest.mark.xdist_group("tool-environments")]

install = load(HELPER / "install.py")

GROUPS = (Path(__file__).parent / "corpus" / "groups.toml").read_text("utf-8")


def pin(wheels: Path, name: str, version: str) -> str:
    data = (wheels / f"{name}-{version}-py3-none-any.whl").read_bytes()
    return f"{name}=={version} \\\n    --hash=sha256:{hashlib.sha256(data).hexdigest()}\n"


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    """A tool of one library, with a build for CPUs, and one for GPUs that brings another."""
    wheels = tmp_path / "wheels"
    wheel(wheels, "first", "1.0+cpu")
    wheel(wheels, "first", "1.0", requires='driver ; platform_system == "Linux"')
    wheel(wheels, "driver", "3.0")
    place = tmp_path / "tools-of-mine" / "two"
    (place / "requirements").mkdir(parents=True)
    (place / "worker.py").write_text("")
    (place / "tool.toml").write_text(f'summary = "s"\n[packages]\nfirst = "1.0+cpu"\n{GROUPS}')
    locks = {"first": ("first", "1.0"), "first-cpu": ("first", "1.0+cpu"), "gpu": ("driver", "3.0")}
    for lock, (name, version) in locks.items():
        (place / f"requirements/lock-{lock}.txt").write_text(pin(wheels, name, version))
    return place


def document(made: Environments) -> dict[str, Any]:
    return dict(json.loads((made.place("two") / MADE).read_bytes()))


def test_the_preferred_build_is_taken_and_brings_nothing_else(tmp_path: Path, tool: Path) -> None:
    made = own(tmp_path, tool)

    made.install("two")

    versions = document(made)["versions"]
    assert (versions["first"], versions.get("driver")) == ("1.0+cpu", None)
    assert document(made)["hashes"] == "verified"


def test_the_other_build_comes_with_what_it_needs(tmp_path: Path, tool: Path) -> None:
    (tmp_path / "wheels/first-1.0+cpu-py3-none-any.whl").unlink()
    made = own(tmp_path, tool)

    made.install("two")

    versions = document(made)["versions"]
    assert (versions["first"], versions["driver"]) == ("1.0", "3.0")


@pytest.mark.parametrize("changed", ["first-1.0+cpu", "driver-3.0"])
def test_other_bytes_of_a_locked_version_fail(changed: str, tmp_path: Path, tool: Path) -> None:
    name, version = changed.split("-")
    wheel(tmp_path / "wheels", name, version, requires="anything ; extra == 'x'")
    if name == "driver":
        (tmp_path / "wheels/first-1.0+cpu-py3-none-any.whl").unlink()
    made = own(tmp_path, tool)

    with pytest.raises(PackagesDiffer, match=rf"serves other files of {name}==") as caught:
        made.install("two")

    assert caught.value.exit_code == 69
    assert "--allow-unhashed" in caught.value.hint
    assert made.installed() == []


@cases("passed_over")
def test_only_a_build_that_the_index_lacks_is_passed_over(
    said: str, status: int, asked: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an index that serves a changed file would lead to another one."""
    tried: list[str] = []

    def run(command: list[str]) -> tuple[int, str]:
        tried.append(Path(command[command.index("--requirement") + 1]).name)
        return (1, said) if said and len(tried) == 1 else (0, "")

    monkeypatch.setattr(install, "run", run)
    group = {"requirements": "all.txt", "prefer": "cpu.txt", "require_hashes": True}

    assert install.install(group, Path("tool"), None) == status
    assert tuple(tried) == asked


def test_a_source_distribution_is_not_built(tmp_path: Path, tool: Path) -> None:
    """Building it would fetch packages that no lock names."""
    (tmp_path / "wheels/driver-3.0-py3-none-any.whl").rename(tmp_path / "wheels/driver-3.0.tar.gz")
    (tmp_path / "wheels/first-1.0+cpu-py3-none-any.whl").unlink()

    with pytest.raises(ToolUnavailable, match=r"No matching distribution found for driver==3\.0"):
        own(tmp_path, tool).install("two")


def test_an_unverified_environment_is_recorded_and_kept_apart(tmp_path: Path, tool: Path) -> None:
    wheel(tmp_path / "wheels", "first", "1.0+cpu", requires="anything ; extra == 'x'")
    allowing, strict = own(tmp_path, tool, **{ALLOW_UNHASHED: "1"}), own(tmp_path, tool)

    allowing.install("two")

    assert document(allowing)["hashes"] == "not verified"
    assert allowing.facts("two").requirements != strict.facts("two").requirements
    assert (allowing.facts("two").installed, strict.facts("two").installed) == (True, False)
    assert [(one.hashes, one.current) for one in strict.installed()] == [("not verified", False)]
    with pytest.raises(PackagesDiffer):
        strict.install("two")


def test_without_locks_the_switch_changes_nothing(tmp_path: Path, tool: Path) -> None:
    text = (tool / "tool.toml").read_text().replace("require_hashes = true\n", "")
    (tool / "tool.toml").write_text(text)
    allowing, strict = own(tmp_path, tool, **{ALLOW_UNHASHED: "1"}), own(tmp_path, tool)

    assert allowing.place("two") == strict.place("two")
    assert strict.tool("two").hashes == "not asked for"


@pytest.mark.parametrize("change", ["prefer", "needed_by", "require_hashes", "no_deps"])
def test_how_groups_install_decides_environments(change: str, tmp_path: Path, tool: Path) -> None:
    before = own(tmp_path, tool).place("two")
    lines = (tool / "tool.toml").read_text().splitlines()
    first = next(line for line in lines if line.startswith(change))
    lines.remove(first)
    (tool / "tool.toml").write_text("\n".join(lines))

    assert own(tmp_path, tool).place("two") != before


def test_the_command_installs_unverified_only_when_told_and_the_list_says_so(
    tmp_path: Path, tool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(tmp_path / "wheels", "first", "1.0+cpu", requires="anything ; extra == 'x'")
    monkeypatch.setattr(
        "packager.cli.commands.tools.environments_for",
        lambda settings: own(tmp_path, tool, **switch(settings)),
    )
    monkeypatch.setattr("packager.cli.commands.tools.tool_names", lambda warn: ("two",))

    refused = CliRunner().invoke(tools, ["install", "two"])
    allowed = CliRunner().invoke(tools, ["install", "two", "--allow-unhashed"])
    listed = CliRunner().invoke(tools, ["list"])

    assert isinstance(refused.exception, PackagesDiffer)
    assert allowed.exit_code == 0, allowed.output
    assert "not verified" in listed.output


def switch(settings: Settings) -> dict[str, str]:
    value = settings.environment.get(ALLOW_UNHASHED)
    return {ALLOW_UNHASHED: value} if value else {}
