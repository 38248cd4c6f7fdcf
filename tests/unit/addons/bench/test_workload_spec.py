"""Workload specifications of SageMaker's AI benchmark jobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from packager.addons.bench.load import template, template_sandbox
from packager.addons.bench.load.spec import RequestSpec
from packager.addons.bench.options import BenchOptions
from packager.addons.bench.workload_spec import WorkloadSpec, read_workload_spec
from packager.core.errors import NotFound
from tests.support.cases import Case, cases, read_tables
from tests.support.refusals import raises_code

Read = Callable[..., WorkloadSpec]


@pytest.fixture(autouse=True)
def sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print templates in this process."""

    class Printer:
        def ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
            return template_sandbox.answer(order, 0.5)

    monkeypatch.setattr(template, "_PRINTER", Printer())


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Return what reads a specification with these parameters and other parts."""

    def made(parameters: Any, parts: dict[str, Any] | None = None) -> WorkloadSpec:
        document = {"benchmark": {"type": "aiperf"}, "parameters": parameters, **(parts or {})}
        path = tmp_path / "workload.json"
        path.write_text(json.dumps(document, indent=1))
        return read_workload_spec(path)

    return made


def as_json(found: WorkloadSpec) -> Any:
    return json.loads(json.dumps(dict(found.options)))


@cases("read")
def test_parameters_are_options_of_the_benchmark(read: Read, case: Case) -> None:
    found = read(case["parameters"], case.get("parts"))

    assert set(found.options) <= {*RequestSpec.__slots__, *BenchOptions.__slots__}
    assert as_json(found) == case["options"]
    assert (found.tokenizer or None, [*found.notes]) == (
        case.get("tokenizer"),
        case.get("notes", []),
    )
    assert found.needs_data is case.get("needs_data", False)
    assert found.template_file == case.get("template_file", "")


def test_yaml_means_the_same_as_json(tmp_path: Path) -> None:
    path = tmp_path / "workload.yaml"
    path.write_text(read_tables(__file__)["yaml"]["text"])

    assert as_json(read_workload_spec(path)) == read_tables(__file__)["yaml"]["options"]


@cases("refused")
def test_what_would_be_measured_otherwise_is_refused_by_name(
    read: Read,
    parameters: Any,
    parts: dict[str, Any] | None,
    said: str,
) -> None:
    with raises_code("BadWorkloadSpec") as refused:
        read({} if parameters is None else parameters, parts)

    assert refused.value.message.partition(": ")[2].startswith(said)
    assert refused.value.message.startswith("line ")
    assert "hf_secret" not in refused.value.message


@cases("files")
def test_a_file_that_is_no_specification_is_refused(text: str, said: str, tmp_path: Path) -> None:
    refuse(tmp_path, text.encode(), said)


def test_a_file_that_is_large_or_no_text_is_refused(tmp_path: Path) -> None:
    refuse(tmp_path, b"x" * (1024 * 1024 + 1), "workload.json: it has more than 1048576 bytes")
    refuse(tmp_path, b"\xff", "workload.json: it cannot be read: 'utf-8' codec")


def refuse(place: Path, data: bytes, said: str) -> None:
    path = place / "workload.json"
    path.write_bytes(data)
    with raises_code("BadWorkloadSpec") as refused:
        read_workload_spec(path)

    assert refused.value.message.startswith(said)


def test_a_misspelt_parameter_has_a_suggestion(read: Read) -> None:
    with raises_code("BadWorkloadSpec") as refused:
        read({"concurency": 4})

    assert refused.value.message.startswith("line 6 of workload.json: ")
    assert refused.value.hint == "did you mean 'concurrency'?"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no workload specification at"):
        read_workload_spec(tmp_path / "no.json")
