"""Managed environments: made once, whole or not at all, from the user's own index."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from packager.core.errors import NotFound, OutputFailed, ToolUnavailable, UsageError
from packager.optimize.steps.tools.environments import Environments, allows
from tests.support.cases import cases
from tests.support.tool_steps import environments


def wheel(directory: Path, name: str, version: str, requires: str = "") -> None:
    directory.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    if requires:
        metadata += f"Requires-Dist: {requires}\n"
    with zipfile.ZipFile(directory / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}.py", "")
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    """A tool whose packages are two wheels in a directory."""
    wheel(tmp_path / "wheels", "first", "1.0+cpu")
    wheel(tmp_path / "wheels", "second", "2.0", requires="nobody-has-this")
    place = tmp_path / "tools-of-mine" / "two"
    (place / "requirements").mkdir(parents=True)
    (place / "worker.py").write_text("")
    (place / "tool.toml").write_text(
        'summary = "two wheels"\n[packages]\nfirst = "1.0"\nsecond = "2.0"\n'
        '[[install]]\nrequirements = "requirements/a.txt"\n'
        '[[install]]\nrequirements = "requirements/b.txt"\nno_deps = true\n'
    )
    (place / "requirements/a.txt").write_text("first==1.0\n")
    (place / "requirements/b.txt").write_text("second==2.0\n")
    return place


def own(tmp_path: Path, tool: Path, **more: str) -> Environments:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path / "wheels"),
        **more,
    }
    return environments(tmp_path, find=lambda name: tool.parent / name, environment=environment)


def test_a_changed_worker_is_another_tool_in_one_environment(tmp_path: Path, tool: Path) -> None:
    before = own(tmp_path, tool)
    before.tool("two")
    (tool / "worker.py").write_text("# better\n")
    after = own(tmp_path, tool)

    assert after.facts("two").worker != before.facts("two").worker
    assert after.place("two") == before.place("two")


@pytest.fixture
def borrower(tool: Path) -> Path:
    """A tool that runs in the environment of `two`."""
    place = tool.parent / "guest"
    place.mkdir()
    (place / "worker.py").write_text("")
    (place / "tool.toml").write_text('summary = "guest"\nenvironment = "two"\n')
    return place


@cases("not_borrowed")
def test_what_cannot_be_borrowed_is_refused(
    tmp_path: Path, tool: Path, borrower: Path, text: str, said: str
) -> None:
    (borrower / "tool.toml").write_text(f'summary = "s"\n{text}')

    with pytest.raises((UsageError, NotFound), match=said):
        own(tmp_path, tool).install("guest")


@cases("not_begun")
def test_a_tool_that_cannot_be_installed_here_is_not_begun(
    tmp_path: Path, tool: Path, text: str, error: str, said: str
) -> None:
    (tool / "tool.toml").write_text(f'summary = "s"\n{text}\n')

    with pytest.raises((OutputFailed, ToolUnavailable, UsageError), match=said) as refused:
        own(tmp_path, tool).install("two")
    assert type(refused.value).__name__ == error


def test_an_unknown_tool_is_not_found(tmp_path: Path, tool: Path) -> None:
    with pytest.raises(NotFound, match="there is no tool 'three'"):
        own(tmp_path, tool).install("three")


@cases("specifiers")
def test_python_versions_are_compared_as_specifiers_say(
    wanted: str, version: str, allowed: bool
) -> None:
    assert allows(wanted, version) is allowed


def test_uv_is_left_alone_where_only_pip_knows_the_index(tmp_path: Path, tool: Path) -> None:
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text("#!/bin/sh\nexit 1\n")
    uv.chmod(0o755)
    path = {"PATH": f"{uv.parent}:{os.environ['PATH']}"}

    assert own(tmp_path, tool, **path)._uv() is None
    assert own(tmp_path, tool, **path, UV_INDEX_URL="https://localhost")._uv() == str(uv)
