"""Parts of small models with schemes of their own: quantized as asked, and read so by engines.

The readers' ways to find a module's group are written down here: vLLM 0.32.0's, which asks for
what it fuses by a name that no checkpoint has, and compressed-tensors 0.19's, which sorts targets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from packager.catalog.engine_layers import find_layers
from packager.core.model import ModelFiles
from packager.models.checkpoints.gate import inspect_quantized
from packager.models.local import LocalSource
from packager.models.reference import parse_model_reference
from tests.live.planned_cases import planned_parameters
from tests.live.tool_programs import documents_in, run_program
from tests.support.cases import cases_of, read_tables
from tests.support.vllm_packages import loaded_by_vllm, unpacked_base

pytestmark = [pytest.mark.live, pytest.mark.timeout(1800)]

cases = cases_of(__file__)

CASES: list[dict[str, Any]] = read_tables(__file__)["a_model_is_quantized_and_read_as_asked"]
PLAIN = "plain"
FORMS = {"float-quantized": "fp8", "nvfp4-pack-quantized": "nvfp4", "pack-quantized": "int4"}

Found = Mapping[str, Any]


@pytest.fixture(scope="module")
def found(quantizing_python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Found]:
    """Quantize every case in one process; what it measured, and where the result is."""
    place = tmp_path_factory.mktemp("mixed")
    models, made = place / "models", sorted({case["model"] for case in CASES})
    run_program(quantizing_python, "tiny_architectures.py", str(models), *made)
    asked = [
        {
            "name": case["model"],
            "label": case["id"],
            "keep": str(place / case["id"]),
            "evaluate": True,
            "parameters": planned_parameters(
                models / case["model"],
                case["quantize"],
                tuple(case.get("ignore", ())) or None,
                instance="ml.p6-b200.48xlarge",
                layers=tuple(case["layers"]) or None,
            ),
        }
        for case in CASES
    ]
    (place / "cases.json").write_text(json.dumps(asked))
    words = (str(place / "cases.json"), str(models), str(place / "w"))
    out = run_program(quantizing_python, "quantize_matrix.py", *words)
    told = {one["label"]: one for one in documents_in(out)}
    return {case["id"]: {**told[case["id"]], "place": place / case["id"]} for case in CASES}


@cases("a_model_is_quantized_and_read_as_asked", ignore=(), cache=False)
def test_a_model_is_quantized_and_read_as_asked(
    found: dict[str, Found], case: dict[str, Any]
) -> None:
    """`forms`: pattern → how the modules are stored that it is the first to match."""
    told, cache = found[case["id"]], case["cache"]
    assert "failed" not in told, told["failed"]
    assert (told["lost"], told["changed"]) == ([], [])
    assert told["difference"] <= 0.25
    assert 0 < told["kld"] < 0.01  # as the evaluate tool reads it

    files = LocalSource().facts(parse_model_reference(str(told["place"] / "quantized")))
    stored, stated = stored_forms(files), files.config["quantization_config"]
    assert {module: expected(module, case["forms"]) for module in stored} == stored
    assert any(name.name.endswith(".k_scale") for name in files.tensors) == cache
    assert bool(stated.get("kv_cache_scheme")) == cache
    assert not inspect_quantized(files).findings
    assert dict(by_compressed_tensors(stored, stated)) == stored
    architecture = files.config["architectures"][0]
    for nested in ("", "language_model."):  # engines put models that see around others
        assert dict(by_vllm(stored, stated, architecture, nested)) == stored


def test_vllm_fills_every_parameter_of_experts_and_attention_in_different_formats(
    found: dict[str, Found], serving_base: str, tmp_path: Path
) -> None:
    del serving_base
    mixes = ("one layer as it is", "FP4 experts beside FP8")
    checkpoints = {name: found[name]["place"] / "quantized" for name in mixes}

    loaded = loaded_by_vllm(str(unpacked_base()), "cuda", checkpoints, tmp_path)

    for name in mixes:
        assert "refused" not in loaded[name], loaded[name]["refused"]
        assert (loaded[name]["unfilled"], loaded[name]["misplaced"]) == ([], [])


def expected(module: str, forms: Mapping[str, str]) -> str:
    return next(form for pattern, form in forms.items() if re.match(pattern, module))


def stored_forms(files: ModelFiles) -> dict[str, str]:
    """Return how each matrix of the language model is stored, apart from embeddings and norms."""
    names = {tensor.name for tensor in files.tensors}
    found = {}
    for tensor in files.tensors:
        module, _, part = tensor.name.rpartition(".")
        if part not in ("weight", "weight_packed") or len(tensor.shape) != 2:
            continue
        if re.search(r"embed|visual|conv1d|layers\.2\.", module):  # layer 2: an MTP head's
            continue
        packed = "nvfp4" if f"{module}.weight_global_scale" in names else "int4"
        scaled = "fp8" if f"{module}.weight_scale" in names else PLAIN
        found[module] = packed if part == "weight_packed" else scaled
    return found


def by_compressed_tensors(
    modules: Iterable[str], stated: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Find each module's group as `match_targets` does: patterns in order of their text."""
    groups = targets_of(stated)
    for module in modules:
        if module in stated["ignore"]:
            yield module, PLAIN
            continue
        ordered = sorted(groups, key=lambda target: ("re:" in target, target))
        found = [target for target in ordered if matches(target, module)]
        yield module, groups[next(iter(found), "Linear")] if found or "Linear" in groups else PLAIN


def by_vllm(
    modules: Iterable[str], stated: Mapping[str, Any], architecture: str, nested: str
) -> Iterator[tuple[str, str]]:
    """Find each module's group as `find_matched_target` does, by what it is fused to."""
    groups = targets_of(stated)
    every = list(modules)
    fused = {
        part: (f"{path}.{name}", parts)
        for (path, name), parts in find_layers(architecture).fusions(every).items()
        for part in parts
        if name != "experts"
    }
    for module in every:
        if module in stated["ignore"]:
            yield module, PLAIN
            continue
        whole, parts = fused.get(module, (module, [module]))
        first = next((one for one in groups if matches(one, f"{nested}{whole}")), None)
        of_parts = [
            next((one for one in groups if matches(one, f"{nested}{part}")), None) for part in parts
        ]
        target = first or (of_parts[0] if all(of_parts) else None)
        is_head = module.endswith("lm_head")  # of a class that no target names
        rest = groups.get("Linear", PLAIN) if not is_head else PLAIN
        yield module, groups[target] if target else rest


def targets_of(stated: Mapping[str, Any]) -> dict[str, str]:
    return {
        target: FORMS[group["format"]]
        for group in stated["config_groups"].values()
        for target in group["targets"]
    }


def matches(target: str, name: str) -> bool:
    if target.startswith("re:"):
        return re.match(target.removeprefix("re:"), name) is not None
    return target == name
