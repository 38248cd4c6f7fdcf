"""What goes with the images of a bundle: wheels of tools, cached results, the user's catalog."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from packager.addons.bundle.manifest import CATALOG, WHEELS
from packager.core.command_line import command_text
from packager.core.errors import NotFound, Unavailable
from packager.core.events import EventSink, working
from packager.core.files.atomic import explain_disk_errors
from packager.optimize.steps.tools.definition import ToolDefinition

_LAST = 3  # lines of pip's that an error repeats


def add_wheels(directory: Path, tools: Sequence[ToolDefinition], on_event: EventSink) -> None:
    """Download the wheels of tools' locks for this machine; pip compares each with its SHA-256.

    Your pip settings decide where they come from.  Raises `Unavailable`.
    """
    for tool in tools:
        place = directory / WHEELS / tool.name
        with working(on_event, "wheels", tool.name):
            for choices in lock_files(tool):
                _download(tool.name, choices, place)


def lock_files(tool: ToolDefinition) -> Iterator[tuple[Path, ...]]:
    """Yield the lock of each group of packages; where there are two, the preferred one first."""
    for group in tool.provider.file.install:
        if group.needed_by:  # packages of torch's builds for GPUs
            continue
        names = filter(None, (group.prefer, group.requirements))
        yield tuple(tool.provider.directory / name for name in names)


def _download(tool: str, choices: Sequence[Path], place: Path) -> None:
    options = (
        "--no-deps",
        "--only-binary",
        ":all:",
        "--require-hashes",
        "--disable-pip-version-check",
    )
    for lock in choices:
        command = (sys.executable, "-m", "pip", "download", "--quiet", *options)
        done = subprocess.run(
            (*command, "--dest", str(place), "--requirement", str(lock)),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            return
    last_lines = [line for line in done.stderr.splitlines() if line.strip()][-_LAST:]
    raise Unavailable(
        f"the wheels of tool {tool!r} cannot be downloaded: {'; '.join(last_lines)[:500]}",
        hint="your pip settings name the index; run `packager bundle create` again: what is there "
        "is kept",
    )


def add_catalog(directory: Path, files: Sequence[Path]) -> None:
    """Copy the user's catalog files; raises `NotFound`."""
    for file in files:
        if not file.is_file():
            raise NotFound(f"there is no catalog {str(file)!r}", hint="leave --catalog out")
        place = directory / CATALOG / file.name
        with explain_disk_errors(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)


def settings_of(directory: Path) -> Mapping[str, str]:
    """Return the variables with which packager uses a bundle, and asks no index and no hub."""
    root = directory.resolve()
    found = {"PIP_NO_INDEX": "1", "UV_NO_INDEX": "1", "UV_OFFLINE": "1"}
    found |= {"HF_HUB_OFFLINE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    wheels = sorted(path for path in (root / WHEELS).glob("*") if path.is_dir())
    if wheels:
        found["PIP_FIND_LINKS"] = " ".join(map(str, wheels))
        found["UV_FIND_LINKS"] = ",".join(map(str, wheels))
    return found


def shell_lines(settings: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines that a shell reads."""
    for name, value in settings.items():
        yield f"export {name}={command_text((value,))}"
