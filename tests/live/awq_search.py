"""AWQ's search beside the library's own, bit by bit: run in the tool environment.

    python awq_search.py rounding
    python awq_search.py left
    python awq_search.py models CASES MODELS WORK

`rounding` rounds matrices of many shapes; `left` tells what is left to the library; `models`
quantizes each case of `quantize_matrix.py` by the library's search and by the worker's, on one
thread and on two.  One line of JSON each.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from compressed_tensors.quantization import (
    initialize_module_for_quantization,
    preset_name_to_scheme,
)
from llmcompressor.modifiers.quantization.calibration import observe, update_qparams
from llmcompressor.modifiers.transform.awq import base as library
from llmcompressor.observers import Observer
from quantize_matrix import Collected, quantize, spec_of  # which finds the worker's modules
from safetensors.torch import load_file

import folding  # isort: skip
import searching  # isort: skip

THREADS = (1, 2, 3, 4)
FEW_THREADS = (1, 2)
SHAPES = ((96, 256, 32), (1000, 384, 128), (7, 8192, 64), (300, 4096, 128))
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def rounding() -> Iterator[dict[str, Any]]:
    """Round each matrix as the library does, and here."""
    torch.manual_seed(0)
    for (rows, columns, group), dtype, symmetric, exact in itertools.product(
        SHAPES, DTYPES, (False, True), (torch.float32, torch.float64)
    ):
        weight = torch.randn(rows, columns).mul(0.02).to(dtype)
        weight[0], weight[1, :group], weight[2] = 0, 3, weight[2].abs()  # no range, one sign
        scales = torch.rand(1, columns, dtype=exact) * 2 + 0.1
        layer = layer_of(weight, group, symmetric=symmetric)
        found = {"shape": [rows, columns, group], "dtype": str(dtype), "symmetric": symmetric}
        wanted = rounded_by_the_library(layer, weight, scales)
        for threads in THREADS:
            torch.set_num_threads(threads)
            assert searching._is_plain(layer, weight)
            matrix = searching._matrix(layer, weight.clone())
            with searching.Cores() as cores:
                cores.round([matrix], scales)
            got = (layer.weight.data, layer.weight_scale.data, layer.weight_zero_point.data)
            yield {**found, "exact": str(exact), "threads": threads, "equal": alike(got, wanted)}


def left() -> Iterator[dict[str, Any]]:
    """Tell of matrices and modules whether they are left to the library."""
    weight = torch.ones(64, 256, dtype=torch.bfloat16)
    changes: dict[str, dict[str, Any]] = {
        "nothing": {},
        "a scale for an output": {"strategy": "channel"},
        "floating point": {"type": "float"},
        "scales while serving": {"dynamic": True},
        "scales of another type": {"scale_dtype": torch.float8_e4m3fn},
        "groups that do not divide it": {"group_size": 96},
    }
    for name, change in changes.items():
        layer = layer_of(weight, 64, symmetric=True)
        for key, value in change.items():
            vars(layer.quantization_scheme.weights)[key] = value
        yield {"matrix": name, "left": not searching._is_plain(layer, weight)}
    turned = weight.T
    yield {"matrix": "transposed", "left": not searching._is_plain(layer_of(weight, 64), turned)}
    texts = [{"input": weight[:2]}, {"input": weight[:3]}]
    layer, foreign = layer_of(weight, 64), layer_of(weight, 64)
    foreign.forward = layer.forward
    modules = {"plain": layer, "with a forward of another": foreign}
    modules["with a part that has one"] = torch.nn.Sequential(foreign)
    for name, module in modules.items():
        for threads in (1, 2, 3, 5, 6):
            torch.set_num_threads(threads)
            for some in (texts[:1], texts):
                with searching.Cores() as cores:
                    found = cores.outputs(module, some)
                told = {"module": name, "threads": threads, "texts": len(some)}
                wanted = tuple(module(**text) for text in some)
                equal = found is None or alike(tuple(found), wanted)
                yield {**told, "left": found is None, "equal": equal}


def layer_of(weight: torch.Tensor, group: int, *, symmetric: bool = True) -> torch.nn.Linear:
    """Return a layer that is about to be quantized."""
    layer = torch.nn.Linear(*reversed(weight.shape), bias=False, dtype=weight.dtype)
    scheme = preset_name_to_scheme("W4A16" if symmetric else "W4A16_ASYM", ["Linear"])
    scheme.weights.group_size = group
    initialize_module_for_quantization(layer, scheme, force_zero_point=True)
    return layer


@torch.no_grad()
def rounded_by_the_library(
    layer: torch.nn.Linear, weight: torch.Tensor, scales: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Round as `AWQModifier._compute_best_scale` does, in its words."""
    args = layer.quantization_scheme.weights
    layer.weight_observer = Observer.load_from_registry(
        "memoryless_minmax", base_name="weight", args=args
    )
    layer.weight.data = weight.clone()
    layer.weight.data.copy_(weight * scales)
    observe([layer], "weight")
    update_qparams([layer], "weight", only_update_onload=True)
    layer.weight.data = (library.forward_quantize(layer, layer.weight, "weight", args) / scales).to(
        layer.weight.dtype
    )
    return layer.weight.data, layer.weight_scale.data, layer.weight_zero_point.data


def alike(got: tuple[torch.Tensor, ...], wanted: tuple[torch.Tensor, ...]) -> bool:
    """Compare bit by bit: 0 and -0 are not the same."""
    return all(
        (one.dtype, one.shape) == (other.dtype, other.shape)
        and torch.equal(one.view(torch.uint8), other.view(torch.uint8))
        for one, other in zip(got, wanted, strict=True)
    )


def models(cases: Path, place: Path, work: Path) -> Iterator[dict[str, Any]]:
    """Quantize each case by both searches, and compare the files."""
    for case in json.loads(cases.read_text()):
        torch.set_num_threads(1)
        with librarys() as left:
            wanted = quantized(case, place, work)
        for threads in FEW_THREADS:
            torch.set_num_threads(threads)
            with counted() as done:
                got = quantized(case, place, work)
            equal = got.keys() == wanted.keys() and all(
                alike((got[name],), (wanted[name],)) for name in wanted
            )
            told = {"name": case["name"], "label": case["label"], "threads": threads}
            yield {**told, "equal": equal, "left": left["searches"], **done}


def quantized(case: dict[str, Any], place: Path, work: Path) -> dict[str, torch.Tensor]:
    """Quantize, and return all tensors."""
    spec = spec_of(case, place, work)
    quantize(spec, Collected())
    files = sorted(spec.output.glob("*.safetensors"))
    return {name: tensor for file in files for name, tensor in load_file(file).items()}


@contextlib.contextmanager
def librarys() -> Iterator[dict[str, int]]:
    """Leave everything to the library, and count its searches."""
    search, left = library.AWQModifier._compute_best_scale, {"searches": 0}

    def count(*arguments: Any) -> Any:
        left["searches"] += 1
        return search(*arguments)

    with (
        mock.patch.object(searching, "search_is_known", lambda: False),
        mock.patch.object(searching.Cores, "outputs", lambda *_: None),
        mock.patch.object(library.AWQModifier, "_compute_best_scale", count),
    ):
        yield left


@contextlib.contextmanager
def counted() -> Iterator[dict[str, int]]:
    """Count the searches that are done here, and the passes of texts beside each other."""
    done = {"searched": 0, "beside": 0}
    search, outputs = searching.search, searching.Cores.outputs

    def counting(*arguments: Any) -> Any:
        done["searched"] += 1
        return search(*arguments)

    def passing(*arguments: Any) -> Any:
        found = outputs(*arguments)
        done["beside"] += found is not None
        return found

    with (
        mock.patch.object(folding, "search", counting),
        mock.patch.object(searching.Cores, "outputs", passing),
    ):
        yield done


if __name__ == "__main__":
    programs = {"rounding": rounding, "left": left, "models": models}
    for one in programs[sys.argv[1]](*map(Path, sys.argv[2:])):
        sys.stdout.write(json.dumps(one) + "\n")
