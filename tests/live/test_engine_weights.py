"""Quantized weights, loaded by vLLM itself under the names that they have: oldest and newest.

Kernels for quantized experts are for GPUs, and for processors with AMX: what is tested here is all
that comes before them, for Mixtral by every method, and for many architectures as they are planned.
vLLM's own class of the model is built, on a pretended device, and its own `load_weights` gets the
checkpoint: each parameter is filled, and each tensor is where it belongs.

The oldest version is the first of those that packager names for which PyPI has a build for
processors (0.6.3, 0.7.3 and 0.8.4 of LMI 13 to 15 have none).  Its Python files are laid over the
packages of the serving base, with the releases of transformers and compressed-tensors of its time;
its kernels, for another release of torch, are taken away.

`PACKAGER_SERVE=all` pretends every device, and has every method.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from packager.catalog.containers import find_container
from packager.engines.config_keys import check_config_keys
from packager.models.local import LocalSource
from packager.models.reference import parse_model_reference
from tests.live.checkpoints import read_tensors, rename_tensors
from tests.live.planned_cases import planned_parameters
from tests.live.tool_programs import documents_in, run_program
from tests.support.cases import cases_of, read_tables
from tests.support.commandline import TINY
from tests.support.vllm_packages import (
    NEWEST,
    OLDEST,
    loaded_by_vllm,
    sglang_site,
    vllm_sites,
)

pytestmark = [pytest.mark.live, pytest.mark.timeout(3600)]

cases = cases_of(__file__)
CORPUS = read_tables(__file__)
NAMED: dict[str, list[str]] = CORPUS["named"]
LONG = os.environ.get("PACKAGER_SERVE") == "all"
METHODS = (
    ("fp8", "static", "awq", "awqsym", "gemm", "gptq", "smoothquant")
    if LONG
    else ("fp8", "awq", "awqsym", "gemm")
)
# version → pretended device → methods that it refuses before it loads anything, in its words
REFUSED: dict[str, dict[str, dict[str, str]]] = CORPUS["refused"]
EVERY = [(version, device) for version, devices in REFUSED.items() for device in devices]
ENGINES = EVERY if LONG else ((NEWEST, "cuda"), (OLDEST, "cuda"))
CASES = [(*engine, method) for engine in ENGINES for method in METHODS]

LOADED = [
    (version, model, asked)
    for version in (NEWEST, OLDEST)
    for asked in CORPUS["asked"]
    for model in CORPUS["models" if asked == "fp8" else "folded"]
]

SGLANG = [
    f"{model} {asked}" for asked, models in CORPUS["sglang"]["loaded"].items() for model in models
]

# config.json with keys that publishers wrote, by the model that transformers saves without them
PUBLISHED: dict[str, dict[str, Any]] = CORPUS["sglang"]["keys"]
DRAFTING = "model.layers.2."  # the layer for drafting, which another class loads

Told = Mapping[str, Any]


@pytest.fixture(scope="module")
def checkpoints(quantizing_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Quantize a Mixtral by every method, by the worker's own code."""
    place = tmp_path_factory.mktemp("experts")
    cases = (str(TINY), str(place), *(f"mixtral:{method}" for method in METHODS))
    run_program(quantizing_python, "whole_models.py", *cases, tools=("llmcompressor",))
    return place


@pytest.fixture(scope="module")
def sites(serving_base: str) -> Mapping[str, str]:
    """Where the packages of each version are."""
    del serving_base
    return vllm_sites()


@pytest.fixture(scope="module")
def told(
    checkpoints: Path, sites: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], Mapping[str, Told]]:
    """Load every checkpoint by an engine version, once for each pretended device."""
    answers: dict[tuple[str, str], Mapping[str, Told]] = {}

    def ask(version: str, device: str) -> Mapping[str, Told]:
        if (version, device) not in answers:
            answers[version, device] = loaded_by_vllm(
                sites[version],
                device,
                {method: checkpoints / f"mixtral-{method}" for method in METHODS},
                tmp_path_factory.mktemp("home"),
            )
        return answers[version, device]

    return ask


@pytest.mark.parametrize(("version", "device", "method"), CASES)
def test_vllm_fills_every_parameter_with_the_tensors_of_the_names_that_we_write(
    told: Callable[[str, str], Mapping[str, Told]], version: str, device: str, method: str
) -> None:
    found = told(version, device)[method]

    assert found["version"].partition("+")[0] == version
    refused = REFUSED[version][device].get(method)
    if refused is not None:
        assert refused in found["refused"]
        return
    assert "refused" not in found, found["refused"]
    assert (found["unfilled"], found["misplaced"]) == ([], [])


@pytest.mark.parametrize("method", NAMED)
def test_experts_have_the_names_of_the_source(checkpoints: Path, method: str) -> None:
    source = read_tensors(checkpoints / "models/mixtral")

    made = read_tensors(checkpoints / f"mixtral-{method}")

    experts = {name.rpartition(".")[0] for name in source if ".experts." in name}
    assert {name for name in made if ".experts." in name} == {
        f"{expert}.{kind}" for expert in experts for kind in NAMED[method]
    }


@pytest.fixture(scope="module")
def changed(
    checkpoints: Path, sites: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Told]:
    """Load a checkpoint that was changed in several ways."""
    root = tmp_path_factory.mktemp("changed")
    expert = "model.layers.1.block_sparse_moe.experts.0."
    one, others = f"{expert}w1.weight", {"renamed": f"{expert}w4.weight", "left out": ""}
    places = {change: root / change.replace(" ", "-") for change in others}
    for change, place in places.items():
        shutil.copytree(checkpoints / "mixtral-fp8", place)
        for file in place.glob("*.safetensors"):
            rename_tensors(file, {one: others[change]})
    return loaded_by_vllm(sites[NEWEST], "cuda", places, root)


@cases("changed")
def test_a_checkpoint_with_other_names_is_told_from_one_with_the_right_ones(
    changed: Mapping[str, Told], change: str, key: str, names: str
) -> None:
    """vLLM itself passes over an expert's tensor that it does not know, and starts."""
    assert names in str(changed[change][key])


@pytest.fixture(scope="module")
def architectures(
    quantizing_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Path]:
    """Quantize a model of each architecture as it is planned, by the worker's own code."""
    place = tmp_path_factory.mktemp("architectures")
    models = place / "models"
    run_program(
        quantizing_python, "tiny_architectures.py", *(str(models), "--wide", *CORPUS["models"])
    )
    kept = {
        f"{model} {asked}": place / "kept" / f"{model}-{number}"
        for number, asked in enumerate(CORPUS["asked"])
        for model in CORPUS["models" if asked == "fp8" else "folded"]
    }
    cases = []
    for name, keep in kept.items():
        model, asked = name.split(" ")
        parameters = planned_parameters(models / model, asked, engine_version=NEWEST)
        cases.append({"name": model, "label": asked, "parameters": parameters, "keep": str(keep)})
    (place / "cases.json").write_text(json.dumps(cases))
    printed = run_program(
        quantizing_python,
        "quantize_matrix.py",
        *(str(place / "cases.json"), str(models), str(place / "work")),
    )
    assert [one for one in documents_in(printed) if "failed" in one] == []
    return {name: keep / "quantized" for name, keep in kept.items()}


@pytest.fixture(scope="module")
def loaded(
    architectures: Mapping[str, Path],
    sites: Mapping[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], Mapping[str, Told]]:
    """Load all of them by a version, once."""

    @functools.cache
    def ask(version: str) -> Mapping[str, Told]:
        return loaded_by_vllm(
            sites[version], "cuda", architectures, tmp_path_factory.mktemp("home")
        )

    return ask


@pytest.mark.parametrize(("version", "model", "asked"), LOADED)
def test_vllm_fills_every_parameter_of_an_architecture_and_reads_every_tensor(
    loaded: Callable[[str], Mapping[str, Told]], version: str, model: str, asked: str
) -> None:
    found = loaded(version)[f"{model} {asked}"]
    row: Told = next(
        (
            row
            for row in CORPUS["otherwise"]
            if version == row["version"]
            and model in row["models"]
            and asked in row.get("asked", (asked,))
        ),
        {},
    )

    if "refused" in row:
        assert row["refused"] in found["refused"]
        return
    assert "refused" not in found, found["refused"]
    for what in ("unfilled", "unread"):
        known = re.compile(row.get(what, "never"))
        assert [name for name in found[what] if not known.fullmatch(name)] == []
        assert found[what] or what not in row


def source_of(architectures: Mapping[str, Path], model: str) -> Path:
    return architectures[f"{model} fp8"].parents[2] / "models" / model


@pytest.fixture(scope="module")
def published(
    architectures: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Path]:
    """Write keys into config.json that transformers left out, of plain checkpoints."""
    root = tmp_path_factory.mktemp("published")
    for model, keys in PUBLISHED.items():
        shutil.copytree(source_of(architectures, model), root / model)
        config = json.loads((root / model / "config.json").read_text())
        for key, value in keys.items():
            *above, last = key.split(".")
            functools.reduce(dict.__getitem__, above, config)[last] = value
        (root / model / "config.json").write_text(json.dumps(config))
    return {model: root / model for model in PUBLISHED}


@pytest.fixture(scope="module")
def by_sglang(
    architectures: Mapping[str, Path],
    published: Mapping[str, Path],
    sites: Mapping[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Mapping[str, Told]:
    """Load the same checkpoints by SGLang's classes."""
    asked = {name: architectures[name] for name in (*SGLANG, *CORPUS["sglang"]["refused"])}
    asked |= {f"{model} saved": source_of(architectures, model) for model in PUBLISHED}
    asked |= published
    return loaded_by_vllm(
        sglang_site(),
        "cuda",
        asked,
        tmp_path_factory.mktemp("home"),
        program="sglang_weights.py",
    )


@pytest.mark.parametrize("name", SGLANG)
def test_sglang_fills_every_parameter_and_reads_every_tensor(
    by_sglang: Mapping[str, Told], name: str
) -> None:
    found = by_sglang[name]

    assert "refused" not in found, found["refused"]
    assert (found["unfilled"], found["unread"]) == ([], [])


@pytest.mark.parametrize("name", CORPUS["sglang"]["refused"])
def test_sglang_refuses_what_it_has_no_place_for(by_sglang: Mapping[str, Told], name: str) -> None:
    assert CORPUS["sglang"]["refused"][name] in by_sglang[name]["refused"]


@pytest.mark.parametrize("model", PUBLISHED)
def test_plans_ask_for_the_keys_without_which_sglang_loads_no_whole_model(
    by_sglang: Mapping[str, Told],
    architectures: Mapping[str, Path],
    published: Mapping[str, Path],
    model: str,
) -> None:
    def faults(found: Told) -> list[str]:
        if "refused" in found:
            return [found["refused"]]
        parts = (*found["unfilled"], *found["unread"])
        return [name for name in parts if not name.startswith(DRAFTING)]

    def asked_of(place: Path) -> list[Any]:
        files = LocalSource().facts(parse_model_reference(str(place)))
        container = replace(find_container("sglang", "nvidia"), engine_version="0.5.23")
        return [*check_config_keys(container, files, {})]

    assert faults(by_sglang[f"{model} saved"])
    assert asked_of(source_of(architectures, model))
    assert faults(by_sglang[model]) == []
    assert asked_of(published[model]) == []
