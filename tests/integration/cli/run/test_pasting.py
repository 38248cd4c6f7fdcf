"""The printed line, pasted from a screen of any width into a real shell."""

from __future__ import annotations

import json

import pytest

from packager.cli.run.clients import ENDPOINTS, Address, body_for, curl_line
from packager.core.reports.text import fitted_lines
from tests.support.cases import read_tables
from tests.support.processes import run_program

NAMES: list[str] = read_tables(__file__)["names"]
CURL = """curl() { printf '%s\\0' "${!#}"; }"""  # in its place: prints the body


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_shell_sends_the_body_that_was_meant_from_a_screen_of_any_width(columns: int) -> None:
    asked = [(name, endpoint) for name in NAMES for endpoint in ENDPOINTS]
    lines = [CURL]
    for name, endpoint in asked:
        address = Address(url="http://127.0.0.1:8080", endpoint=endpoint, model=name)
        lines += fitted_lines([curl_line(address)], columns)

    done = run_program("bash", "-c", "\n".join(lines))

    assert done.stderr == ""
    bodies = [json.loads(line) for line in done.stdout.split("\0")[:-1]]
    assert bodies == [dict(body_for(endpoint, name)) for name, endpoint in asked]
