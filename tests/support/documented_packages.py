"""Packages of `examples/plugins`, which docs/plug-ins.md describes: put as installed ones are.

On a page a block whose first line is ```` ```LANGUAGE title="FILE" ```` is a file.
"""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

from tests.support.commandline import ROOT

_BLOCK = re.compile(r'^( *)```\w+ title="([^"]+)"\n(.*?)^ *```$', re.DOTALL | re.MULTILINE)
_WORDS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}


def write_package(kind: str, into: Path) -> tuple[str, ...]:
    """Copy the package of `examples/plugins`, ready for PYTHONPATH; return its files' names."""
    shutil.copytree(ROOT / "examples/plugins" / kind, into)
    files = sorted(path.relative_to(into).as_posix() for path in into.rglob("*") if path.is_file())
    _install(tomllib.loads((into / "pyproject.toml").read_text())["project"], into)
    return tuple(files)


def write_files(page: str, into: Path) -> dict[str, str]:
    """Write the files of a page of `docs/`; return their text by name."""
    files = {name: body for _, name, body in _BLOCK.findall(_text(page))}
    for name, body in files.items():
        place = into / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(body)
    return files


def stated_count(page: str, kind: str) -> int:
    """Return how many files the page says that one takes: `A sink is two files`."""
    found = re.search(rf"\bAn? {kind}(?: source)? is (\w+) files?\b", _text(page), re.IGNORECASE)
    assert found, f"{page} does not say how many files {kind} takes"
    return _WORDS[found[1]]


def _text(page: str) -> str:
    return (ROOT / "docs" / page).read_text()


def _install(project: dict[str, object], into: Path) -> None:
    """Write what an installer would: the metadata and the entry points."""
    name = str(project["name"])
    place = into / f"{name.replace('-', '_')}-{project['version']}.dist-info"
    place.mkdir()
    place.joinpath("METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {project['version']}\n"
    )
    groups = project["entry-points"]
    assert isinstance(groups, dict)
    lines = [
        line
        for group, points in groups.items()
        for line in (f"[{group}]", *(f"{key} = {value}" for key, value in points.items()))
    ]
    place.joinpath("entry_points.txt").write_text("\n".join(lines) + "\n")
