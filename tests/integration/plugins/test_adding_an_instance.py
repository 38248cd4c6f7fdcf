"""Machines of one's own, as docs/instances.md has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.commandline import TINY, Packager, packager_in
from tests.support.documented_packages import stated_count, write_files

PAGE = "instances.md"
OWN = ("--catalog", "machines.toml")


@pytest.fixture
def run(tmp_path: Path) -> Packager:
    write_files(PAGE, tmp_path)
    return packager_in(tmp_path)


def planned(run: Packager, *arguments: str) -> dict[str, Any]:
    done = run("plan", "--model", str(TINY), *arguments, "--format", "json")
    assert done.status == 0, done.err
    plan: dict[str, Any] = json.loads(done.out)
    return plan


def test_an_instance_is_as_many_files_as_its_page_says(tmp_path: Path) -> None:
    assert len(write_files(PAGE, tmp_path)) == stated_count(PAGE) == 1


def test_a_machine_with_gpus_is_planned_and_ranked(run: Packager) -> None:
    plan = planned(run, "--instance", "rack-7", *OWN)
    ranked = run("plan", "--model", str(TINY), "--instance", "all", *OWN, "--format", "json")

    assert plan["instance"]["name"] == "rack-7"
    assert '"rack-7"' in ranked.out


def test_a_machine_with_neuron_cores_of_an_unknown_version_is_planned(run: Packager) -> None:
    plan = planned(run, "--instance", "pod-1", "--tp-degree", "4", *OWN)

    assert (plan["instance"]["device"], plan["tp_degree"]) == ("NeuronCore-v9", 4)


def test_the_rows_change_no_plan_for_another_machine(run: Packager) -> None:
    assert planned(run, "--instance", "ml.g5.xlarge", *OWN) == planned(
        run, "--instance", "ml.g5.xlarge"
    )
