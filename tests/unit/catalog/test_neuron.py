"""Versions of NeuronCores, and what one that nobody knows breaks: its own instances alone."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from packager.catalog import instances as table
from packager.catalog.instances import find_instance, instance_rows, instances
from packager.catalog.neuron import core_of_instance, find_core, neuron_cores
from packager.core.errors import PlanRejected
from packager.core.findings import errors_in
from packager.core.versions import version_key
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.services import PlannerServices
from tests.support.cases import cases
from tests.support.doubles.containers import FAMILIES
from tests.support.headers import LLAMA_3_8B, facts_of, model_of, plan_of
from tests.support.known import known


@pytest.mark.parametrize("core", neuron_cores(), ids=lambda core: core.version)
def test_each_version_has_a_source_and_is_named_once(core: object) -> None:
    [same] = [one for one in neuron_cores() if one == core]

    assert same.source
    assert same.date > "2026"
    assert version_key(same.version.removeprefix("v")) is not None


@cases("cores_are_those_of_the_instances_family")
def test_cores_are_those_of_the_instances_family(instance: str, arch: str, joined: int) -> None:
    core = known(core_of_instance(instance))

    assert (core.arch, core.joined) == (arch, joined)


def test_every_shipped_instance_has_cores_that_are_known() -> None:
    assert [one.name for one in instances() if one.cores_per_device is None] == []
    assert core_of_instance("ml.g5.xlarge") is None
    assert find_core("v9") is None


@pytest.fixture
def row_of_v9(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The catalog with one more row: a machine with cores of a version without a row."""
    with table.TABLE.open(encoding="utf-8", newline="") as shipped:
        rows = list(csv.DictReader(shipped))
    [inf2] = [row for row in rows if row["instance_type"] == "inf2.xlarge"]
    v9 = {"instance_type": "inf9.xlarge", "ml_name": "ml.inf9.xlarge", "neuron_core_version": "v9"}
    longer = tmp_path / "instances.csv"
    with longer.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(inf2))
        writer.writeheader()
        writer.writerows([*rows, inf2 | v9])
    monkeypatch.setattr(table, "TABLE", longer)
    for cached in (instance_rows, instances):
        cached.cache_clear()
    yield
    for cached in (instance_rows, instances):
        cached.cache_clear()


@pytest.mark.usefixtures("row_of_v9")
def test_a_row_with_unknown_cores_is_listed_and_refused_for_itself_alone() -> None:
    """It was a KeyError of every command: `packager plan --instance ml.g5.xlarge`, too."""
    model = model_of(LLAMA_3_8B)
    v9 = find_instance("inf9.xlarge")

    with pytest.raises(PlanRejected) as refused:
        plan_of(model, v9, family="neuron")

    [error] = [one for one in errors_in(refused.value.findings) if "neuron-core" in one.code]
    assert (error.code, error.severity) == ("neuron-core-unknown", "error")
    assert error.message == (
        "ml.inf9.xlarge has NeuronCore-v9 devices, of which the catalog does not know how many "
        "cores act as one"
    )
    assert v9.cores_per_device is None
    assert plan_of(model, "ml.g5.xlarge").instance.name == "ml.g5.xlarge"


def test_a_machine_of_ones_own_with_new_cores_is_planned_by_its_own_row() -> None:
    """An `[[instance]]` row counts devices itself, so nothing has to be known of the cores.

    The image is one's own, too: those of the catalog are for instance types that they name.
    """
    own = replace(find_instance("ml.inf2.48xlarge"), name="own", device_name="NeuronCore-v9")
    facts = facts_of(model_of(LLAMA_3_8B), own, family="neuron", tp_degree=8)
    image = replace(facts.container, targets=())

    assert (
        make_plan(
            replace(facts, container=image), PlannerServices(family=FAMILIES["neuron"])
        ).tp_degree
        == 8
    )
