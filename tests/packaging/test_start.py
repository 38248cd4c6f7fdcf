"""Starting is light, and the import contract holds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {
    "pydantic",
    "jinja2",
    "rich",
    "urllib3",
    "docker",
    "huggingface_hub",
    "requests",
    "rfc8785",
}


def modules_after(*arguments: str) -> set[str]:
    """Top-level modules loaded by one run of the command line."""
    code = (
        "import sys\n"
        "from packager.cli.app import run\n"
        f"run({list(arguments)!r})\n"
        "print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize("arguments", [("--help",), ("--version",)])
def test_help_loads_no_heavy_module(arguments: tuple[str, ...]) -> None:
    assert not modules_after(*arguments) & HEAVY


def test_planning_talks_to_no_engine_and_no_registry() -> None:
    loaded = modules_after(
        "plan", "--model", str(ROOT / "examples/tiny-llama"), "--instance", "g5.xlarge"
    )

    assert not loaded & {"docker", "urllib3", "huggingface_hub", "requests", "boto3"}


def test_the_import_contract_holds() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout
