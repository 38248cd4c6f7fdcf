"""Install a tool's requirements into the Python that runs this. Standard library alone.

    python install.py TOOL_DIR [--uv UV] [--allow-unhashed] [--build cuda]

Groups come in the order of tool.toml: some libraries must be there before
others are resolved, and some must never bring what they ask for.  Both the
managed environments and the tool images are made by this.

A group that requires hashes takes wheels only: to build a source distribution,
an installer fetches packages that no lock names.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path

# What pip and uv say when no index has a distribution of the version that is asked for, or none
# for this machine and Python.
NOT_THERE = (
    "No matching distribution found for",
    "there is no version of",
    "has no wheels with a matching",
)
NO_GPU_BUILD = "error: the index has no build of torch for GPUs"
EXACTLY = re.compile(r"(?<=[\w.-])==(?!=)")
HASH = re.compile(r"\s*\\\n\s*--hash=\S+|\s+--hash=\S+")


def main() -> int:
    """Install every group; print the versions that are there afterwards as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tool", type=Path)
    parser.add_argument("--uv", help="install with this uv instead of pip")
    parser.add_argument(
        "--allow-unhashed", action="store_true", help="compare no file with the hashes of the locks"
    )
    parser.add_argument(
        "--build", choices=("cpu", "cuda"), default="cpu", help="of torch: cuda to compute on GPUs"
    )
    given = parser.parse_args()
    table = tomllib.loads((given.tool / "tool.toml").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix="packager-locks-") as work:
        for index, group in enumerate(table.get("install", [])):
            if not is_needed(group, given.tool):
                continue
            tool = given.tool
            if given.build == "cuda" and group.get("cuda"):
                group = {**group, "requirements": group["cuda"], "prefer": "", "for_gpus": True}
                tool = only_the_very_build(group, tool, Path(work) / str(index))
            if given.allow_unhashed and group.get("require_hashes"):
                tool = without_hashes(group, tool, Path(work) / f"{index}-unhashed")
                group = {**group, "require_hashes": False}
            if status := install(group, tool, given.uv):
                return status
            # What was installed a moment ago is only seen by a new look.
            importlib.invalidate_caches()
    found = {
        distribution.metadata["Name"]: distribution.version
        for distribution in importlib.metadata.distributions()
    }
    found["python"] = ".".join(map(str, sys.version_info[:3]))
    print(json.dumps(found, sort_keys=True))
    return 0


def install(group: dict[str, object], tool: Path, uv: str | None) -> int:
    """Install a group, or what it prefers where the index has that; return the exit status.

    A preferred file that the index serves with other bytes is refused and not passed over.
    """
    if preferred := group.get("prefer"):
        status, said = run(command_for({**group, "requirements": preferred}, tool, uv))
        if not status or not any(text in said for text in NOT_THERE):
            return status
        print(f"the index has nothing of {preferred}", file=sys.stderr)
    status, said = run(command_for(group, tool, uv))
    if status and group.get("for_gpus") and any(text in said for text in NOT_THERE):
        print(NO_GPU_BUILD, file=sys.stderr)
    return status


def run(command: list[str]) -> tuple[int, str]:
    """Run an installer; hand on what it says on stderr, and return that with its exit status."""
    said = []
    with subprocess.Popen(
        command, stdout=sys.stderr, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as process:
        for line in process.stderr:
            said.append(line)
            sys.stderr.write(line)
            sys.stderr.flush()
    return process.returncode, "".join(said)


def is_needed(group: dict[str, object], tool: Path) -> bool:
    """Check whether the installed distribution that decides on a group asks for any of it."""
    if not (decider := group.get("needed_by")):
        return True
    try:
        wanted = importlib.metadata.requires(str(decider)) or []
    except importlib.metadata.PackageNotFoundError:
        return False
    lines = (tool / str(group["requirements"])).read_text(encoding="utf-8").splitlines()
    return bool(names(line for line in wanted if "extra ==" not in line) & names(lines))


def names(lines: object) -> set[str]:
    """Collect the distributions that requirements name, spelled as indexes compare them."""
    found = (re.match(r"[A-Za-z0-9][\w.-]*", line) for line in lines)
    return {re.sub(r"[-_.]+", "-", match[0]).lower() for match in found if match}


def only_the_very_build(group: dict[str, object], tool: Path, work: Path) -> Path:
    """Copy a group's files so that `2.13.0` does not stand for `2.13.0+cpu`, which wins else."""
    return rewritten(group, tool, work, lambda text: EXACTLY.sub("===", text))


def without_hashes(group: dict[str, object], tool: Path, work: Path) -> Path:
    """Copy a group's files without their hashes: one hash in a file makes pip ask for all."""
    return rewritten(group, tool, work, lambda text: HASH.sub("", text))


def rewritten(
    group: dict[str, object], tool: Path, work: Path, change: Callable[[str], str]
) -> Path:
    """Copy a group's files with their texts changed; return the directory of the copies."""
    for key in ("requirements", "constraints", "prefer"):
        if group.get(key):
            target = work / str(group[key])
            target.parent.mkdir(parents=True, exist_ok=True)
            text = (tool / str(group[key])).read_text(encoding="utf-8")
            target.write_text(change(text), encoding="utf-8")
    return work


def command_for(group: dict[str, object], tool: Path, uv: str | None) -> list[str]:
    """Return the command line that installs one group."""
    command = (
        [uv, "pip", "install", "--python", sys.executable]
        if uv
        else [sys.executable, "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    )
    command += ["--requirement", str(tool / str(group["requirements"]))]
    if "constraints" in group:
        command += ["--constraint", str(tool / str(group["constraints"]))]
    if group.get("no_deps"):
        command.append("--no-deps")
    if group.get("require_hashes"):
        command += ["--require-hashes", "--only-binary", ":all:"]
    return command


if __name__ == "__main__":
    sys.exit(main())
