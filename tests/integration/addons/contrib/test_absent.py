"""Commands without packager.addons.contrib: nobody misses it who does not name a plug-in of it."""

from __future__ import annotations

import pytest

from tests.support.cases import cases
from tests.support.processes import run_python

pytestmark = pytest.mark.extended

WITHOUT_CONTRIB = """
import importlib.abc, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.startswith("packager.addons.contrib"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
from packager.cli.app import run
raise SystemExit(run(sys.argv[1:]))
"""


@cases("commands")
def test_commands_that_do_not_name_it_work_without_contrib(arguments: tuple[str, ...]) -> None:
    run_python("-c", WITHOUT_CONTRIB, *arguments)
