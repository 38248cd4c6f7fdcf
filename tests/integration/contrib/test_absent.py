"""Commands without packager.contrib: nobody misses it who does not name a plug-in of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.extended

WITHOUT_CONTRIB = """
import importlib.abc, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.startswith("packager.contrib"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
from packager.cli.app import run
raise SystemExit(run(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ("list", "compilers"),
        ("cache", "import", "--help"),
        ("plan", "--model", "examples/tiny-llama", "--instance", "ml.g5.xlarge"),
    ],
)
def test_commands_that_do_not_name_it_work_without_contrib(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_CONTRIB, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 0, done.stderr
