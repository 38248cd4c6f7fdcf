"""`packager api env` and `operations`: what clients need, and what each operation meets here."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from packager.addons.server.operations.table import OperationTable
from packager.addons.server.sagemaker.operations import names_of, operation_rows, row_of
from packager.core.documents import parse_object
from tests.integration.addons.server.test_server_process import address, serving
from tests.support.api_server import ApiServer
from tests.support.cases import read_tables
from tests.support.commandline import Packager, packager_in
from tests.support.processes import run_program

PROGRAM = Path(__file__).with_name("asks_aws.py")
EXPECTED = read_tables(__file__)


@pytest.fixture
def packager(tmp_path: Path) -> Packager:
    return packager_in(tmp_path)


def test_a_program_with_the_printed_lines_asks_the_server_for_everything(
    tmp_path: Path, packager: Packager
) -> None:
    state = tmp_path / "state"
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import sys; sys.modules['other'] = sys")
    with serving(state, "--jumpstart", "meta-tiny=s3://models/tiny/") as process:
        url = address(process)
        where = {"XDG_STATE_HOME": str(state), "HOME": str(tmp_path)}
        lines = packager("api", "env", "--s3", url, env=where, status=0).out
        asked = f'{lines}\nexec "$0" "$1"'
        environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path / "own"), **where}
        words = ("bash", "-euc", asked, sys.executable, PROGRAM)
        done = run_program(*words, env=environment, alone=True, status=None)
        variables = packager("api", "env", "--json", "--s3", "aws", env=where, status=0).document

    assert done.stderr == ""
    answers = json.loads(done.stdout)
    refused = answers.pop("refused")
    assert answers == EXPECTED["answers"]
    for message, part in zip(refused, EXPECTED["refused"], strict=True):
        assert part in message
    assert variables["AWS_ENDPOINT_URL"] == url
    assert variables["AWS_ENDPOINT_URL_S3"] == "https://s3.us-east-1.amazonaws.com"
    configuration = parse_object(Path(variables["SAGEMAKER_USER_CONFIG_OVERRIDE"]).read_bytes())
    assert configuration["SageMaker"]["PythonSDK"]["Modules"] == EXPECTED["modules"]


def test_where_no_server_runs_there_is_nothing_to_point_at(
    tmp_path: Path, packager: Packager
) -> None:
    state = {"XDG_STATE_HOME": str(tmp_path)}
    with serving(tmp_path) as process:
        address(process)  # leaves its lock behind

    done = packager("api", "env", env=state, status=66)

    assert done.out == ""
    assert "packager api start" in done.err


def test_the_table_of_operations_is_what_the_server_does(tmp_path: Path) -> None:
    rows = [row for row in operation_rows() if row.service == "sagemaker"]
    done = {name for row in rows if row.here != "refused" for name in names_of(row)}

    with ApiServer(tmp_path) as server:
        answered = OperationTable(server.services).names()

    assert done == {*answered, "InvokeEndpoint", "InvokeEndpointWithResponseStream"}
    assert all(names_of(row) for row in rows)
    assert row_of("bedrock", "Converse").service == "*"


def test_the_table_is_printed(packager: Packager) -> None:
    document = packager("api", "operations", "--format", "json", status=0).document
    text = packager("api", "operations", "--here", "answered", "--service", "sts", status=0).out

    assert sum(len(row["operations"]) for row in document["operations"]) > 400
    assert text.split() == EXPECTED["sts"].split()
