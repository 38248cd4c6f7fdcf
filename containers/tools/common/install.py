"""Install a tool's requirements into the Python that runs this. Standard library alone.

    python install.py TOOL_DIR [--uv UV]

Groups come in the order of tool.toml: some libraries must be there before
others are resolved, and some must never bring what they ask for.  Both the
managed environments and the tool images are made by this.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import subprocess
import sys
import tomllib
from pathlib import Path


def main() -> int:
    """Install every group; print the versions that are there afterwards as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tool", type=Path)
    parser.add_argument("--uv", help="install with this uv instead of pip")
    given = parser.parse_args()
    table = tomllib.loads((given.tool / "tool.toml").read_text(encoding="utf-8"))
    for group in table.get("install", []):
        status = subprocess.run(command_for(group, given.tool, given.uv), stdout=sys.stderr)
        if status.returncode:
            return status.returncode
    # What was installed a moment ago is only seen by a new look.
    importlib.invalidate_caches()
    found = {
        distribution.metadata["Name"]: distribution.version
        for distribution in importlib.metadata.distributions()
    }
    found["python"] = ".".join(map(str, sys.version_info[:3]))
    print(json.dumps(found, sort_keys=True))
    return 0


def command_for(group: dict[str, object], tool: Path, uv: str | None) -> list[str]:
    """Give the command line that installs one group."""
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
        command.append("--require-hashes")
    return command


if __name__ == "__main__":
    sys.exit(main())
