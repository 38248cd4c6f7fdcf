"""What installers of tools are given, and what their logs say of a failure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from packager.core.errors import ToolUnavailable
from packager.optimize.steps.failures import read_tail
from packager.optimize.steps.tools.definition import ToolDefinition

ALLOW_UNHASHED = "PACKAGER_ALLOW_UNHASHED"
NO_GPU_BUILD = "no build of torch for GPUs"  # of install.py
INDEX_SETTINGS = ("index-url", "extra-index-url", "find-links", "no-index", "trusted-host")


def pip_has_an_index(environment: Mapping[str, str]) -> bool:
    """Whether pip's own settings name an index or a directory of packages."""
    named = {f"PIP_{name.upper().replace('-', '_')}" for name in INDEX_SETTINGS}
    if named & set(environment):
        return True
    home = Path(environment.get("HOME", "/"))
    config = environment.get("XDG_CONFIG_HOME") or str(home / ".config")
    files = (
        Path("/etc/pip.conf"),
        home / ".pip/pip.conf",
        Path(config) / "pip/pip.conf",
        Path(environment.get("PIP_CONFIG_FILE", "/dev/null")),
    )
    for file in files:
        with suppress(OSError):
            text = file.read_text(errors="replace")
            if any(re.search(rf"^\s*{name}\s*[=:]", text, re.MULTILINE) for name in INDEX_SETTINGS):
                return True
    return False


def install_options(tool: ToolDefinition) -> list[str]:
    """Return the options of `install.py` for a tool, without its directory."""
    return [
        *(["--build", tool.build] if tool.build != "cpu" else []),
        *(["--allow-unhashed"] if tool.allow_unhashed else []),
    ]


def refuse_missing_build(tool: ToolDefinition, log: Path) -> None:
    """Raise where the index has no CUDA build of torch, as the log of `install.py` reports."""
    text = log.read_text(encoding="utf-8", errors="replace")
    if tool.build == "cuda" and NO_GPU_BUILD in text:
        raise ToolUnavailable(
            f"tool {tool.name!r} cannot be installed for GPUs: your package index has no build of "
            "torch for them",
            hint="name an index that has it, or run the step on the processor: --gpus 0",
            log=read_tail(log),
        )


def refuse_other_files(tool: str, log: Path) -> None:
    """Raise where an installer's log reports files that differ from the lock."""
    text = log.read_text(encoding="utf-8", errors="replace")
    if "DO NOT MATCH THE HASHES" not in text and "Hash mismatch for" not in text:
        return
    found = re.findall(r"^ *([\w.-]+==\S+)[^\n]*:\n\s+Expected sha256", text, re.MULTILINE)
    found += re.findall(r"Hash mismatch for `([^`\s]+)`", text)
    raise PackagesDiffer(tool, ", ".join(dict.fromkeys(found)) or "a package", read_tail(log))


class PackagesDiffer(ToolUnavailable):
    """A package index serves other files than a tool's lock names."""

    def __init__(self, tool: str, packages: str, log: str) -> None:
        super().__init__(
            f"tool {tool!r} was not installed: your package index serves other files of "
            f"{packages} than the tool's lock names",
            hint="find out who built those files; if you trust your index, set "
            f"{ALLOW_UNHASHED}=1, or run `packager tools install {tool} --allow-unhashed`: "
            "results are then kept apart from those of verified tools",
            log=log,
        )


def reason_in(tail: str) -> str:
    """Return the most informative line of an installer's log."""
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines or ["no output"])[-1].removeprefix("ERROR: ")[:300]


def progress_in(tail: str) -> str:
    """Return the installer's last line that describes progress."""
    words = ("Collecting", "Downloading", "Installing", "Building", "Resolved", "Prepared")
    lines = [line.strip() for line in tail.splitlines() if line.strip().startswith(words)]
    return lines[-1][:100] if lines else ""
