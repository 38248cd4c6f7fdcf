"""Workload specifications as SageMaker's SDK, unchanged, writes them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from packager.addons.bench.workload_spec import read_workload_spec
from tests.live.tool_programs import documents_in, printed_by
from tests.support.cases import read_tables

pytestmark = pytest.mark.live

WRITES = Path(__file__).resolve().parent / "sagemaker_writes.py"

OPTIONS = read_tables(__file__)


@pytest.fixture(scope="module")
def written(consumers: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a file of each specification."""
    sdk = str(consumers / "sagemaker")
    [made] = documents_in(printed_by(sys.executable, WRITES, PYTHONPATH=sdk))
    directory = tmp_path_factory.mktemp("workloads")
    for name, text in made.items():
        (directory / name).write_text(text)
    return {path.name: path for path in directory.iterdir()}


def as_read(options: Mapping[str, Any]) -> dict[str, Any]:
    return {**options, "concurrency": list(options["concurrency"])}


def test_made_requests_are_read(written: dict[str, Path]) -> None:
    found = read_workload_spec(written["synthetic"])

    assert as_read(found.options) == OPTIONS["synthetic"]
    assert found.tokenizer == "org/name"
    assert [told.split(" is ")[0] for told in found.notes] == ["the secret 'hf_token'"]


def test_a_data_set_must_be_named_and_a_template_is_read(written: dict[str, Path]) -> None:
    found = read_workload_spec(written["dataset"])

    assert found.needs_data
    assert as_read(found.options) == OPTIONS["dataset"]

    assert read_workload_spec(written["template"]).uses_template
