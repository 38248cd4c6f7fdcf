"""The scripts that read TGI's and Neuron's settings from source, given small trees like theirs."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.support.cases import read_tables
from tests.support.places import SCRIPTS
from tests.support.processes import run_python

EXPECTED = read_tables(__file__)


SOURCES = Path(__file__).parent / "corpus" / "sources"


def tree(place: Path, **changes: str) -> Path:
    """Write the small trees: the files of `corpus/sources`, and those whose text stands there."""
    for name, file in EXPECTED["files"].items():
        text = file.get("text") or (SOURCES / f"{file['source']}.txt").read_text("utf-8")
        text = text.replace("ATYPE", changes.get("of_type", "bool"))
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text.replace("ACTION", changes.get("action", "store_true")))
    return place


def run(of: str, *more: object, status: int | None = 0) -> CompletedProcess[str]:
    return run_python(SCRIPTS / "engine-options", of, *more, status=status)


def read(of: str, place: Path, *more: str) -> dict[str, Any]:
    return dict(json.loads(run(of, tree(place), *more).stdout))


def test_tgis_launcher_router_and_shards_are_read_without_building_them(tmp_path: Path) -> None:
    document = read("tgi", tmp_path)

    assert (document["engine"], document["version"]) == ("tgi", "3.9.0")
    assert document["entrypoint"] == EXPECTED["tgi"]["entrypoint"]
    assert document["options"] == EXPECTED["tgi"]["options"]


def test_a_tag_that_cargo_lags_behind_is_the_version(tmp_path: Path) -> None:
    assert read("tgi", tmp_path, "--tag", "3.9.1")["version"] == "3.9.1"


def test_a_type_that_the_reader_does_not_know_is_not_guessed(tmp_path: Path) -> None:
    done = run("tgi", tree(tmp_path, of_type="Mystery"), status=1)
    assert done.stdout == ""
    assert "there is no enum Mystery" in done.stderr


def test_what_neurons_shards_do_not_take_is_no_option_of_theirs(tmp_path: Path) -> None:
    document = read("neuronx-tgi", tmp_path)

    assert document["engine"] == "neuronx-tgi"
    assert document["entrypoint"]["exports"] == {"MODEL_ID": "HF_MODEL_ID"}
    assert not {"QUANTIZE", "NUM_SHARD", "CUDA_GRAPHS", "ATTENTION"} & document["options"].keys()
    assert {"HF_NUM_CORES", "PORT", "MODEL_ID"} <= document["options"].keys()


def test_the_options_of_optimums_serve_are_read_with_what_it_decides(tmp_path: Path) -> None:
    document = read("optimum-neuron", tmp_path)

    assert document["version"] == "0.9.1"
    assert document["passes_on"] == EXPECTED["serve"]["passes_on"]
    assert document["options"] == EXPECTED["serve"]["options"]


def test_an_action_of_serve_that_the_reader_does_not_know_ends_it(tmp_path: Path) -> None:
    assert run("optimum-neuron", tree(tmp_path, action="append"), status=None).returncode != 0


def test_what_nxd_inference_takes_of_its_keywords_is_read_by_class(tmp_path: Path) -> None:
    document = read("nxdi", tmp_path)

    assert document["configs"].keys() == {"AdditionalConfig", "NeuronConfig", "Sampling"}
    assert document["configs"]["NeuronConfig"]["fields"] == EXPECTED["nxdi"]["fields"]


@pytest.mark.parametrize("of", ["tgi", "neuronx-tgi", "optimum-neuron", "nxdi"])
def test_a_directory_must_be_given(of: str) -> None:
    assert "needs a directory" in run(of, status=2).stderr
