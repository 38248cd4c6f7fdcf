"""Private names of the libraries are as they were read, and each that a worker uses is listed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.places import SCRIPTS

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]
TOOLS = {
    "llmcompressor": "quantizing_python",
    "evaluate": "quantizing_python",
    "draft-heads": "training_python",
}


@pytest.mark.parametrize("tool", TOOLS)
def test_private_names_are_as_they_were_read(tool: str, request: pytest.FixtureRequest) -> None:
    python = request.getfixturevalue(TOOLS[tool])
    command = [sys.executable, SCRIPTS / "library-names", tool, "--python", python]

    done = subprocess.run(command, capture_output=True, text=True)

    assert (done.stdout, done.returncode) == ("", 0), done.stderr[-2000:]
