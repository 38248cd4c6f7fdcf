"""Key documents of checkpoints that `containers/tools/llmcompressor` quantized."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from packager.core.facts import Facts
from packager.core.model import ModelFile
from packager.core.plan import Plan
from packager.core.samples import Samples
from packager.core.techniques import Quantization
from packager.optimize.keys.documents import QuantizedCheckpointKey
from packager.optimize.keys.parts import (
    ActivationQuantization,
    Calibration,
    Invocation,
    Package,
    Precision,
    Toolchain,
    Weights,
)
from packager.optimize.keys.parts import Quantization as QuantizationKey
from packager.optimize.quantize.llmcompressor_options import TOOL, is_symmetric
from packager.optimize.quantize.stream.formats import ARITHMETIC
from packager.optimize.quantize.stream.layout import LAYOUT
from packager.optimize.quantize.stream.same import differs
from packager.optimize.steps.configs import NO_WEIGHT
from packager.optimize.steps.inputs import INDEX
from packager.optimize.steps.key_parts import (
    files_by_path,
    graph_of,
    rounding_toolchain,
    toolchain_of,
)

MIXED = "mixed"  # in place of a method, where parts have several
CONVERSION = "packager-conversion"  # beside the tool: what weights went through before it

# Schemes whose activations are quantized while serving: type, and what shares a scale.
_DYNAMIC: Mapping[str, tuple[str, str]] = {
    "MXFP4": ("fp4_e2m1", "group"),
    "MXFP8": ("fp8_e4m3", "group"),
    "NVFP4": ("fp4_e2m1", "group"),
    "W4AFP8": ("fp8_e4m3", "token"),
}


def checkpoint_key(
    facts: Facts,
    plan: Plan,
    chosen: Quantization,
    files: Iterable[ModelFile],
    parameters: Mapping[str, Any],
    samples: Samples | None,
    env: Mapping[str, str],
) -> QuantizedCheckpointKey | None:
    """Return the key document of a run; None while the digest of one of `files` is missing.

    `files` are those that the method reads, `parameters` the worker's, `env` the variables that
    decide its results; `samples` are None where it needs no texts.
    """
    conversion = facts.model.conversion
    if conversion is not None and conversion.source:  # what is computed of them is not hashed
        beside = (file for file in files if file.role != "weights" and file.path != INDEX)
        files = (*conversion.source, *beside)
    weights = files_by_path(files)
    if weights is None:
        return None
    said = ("ignore", "max_tokens", "seed")  # have a place of their own in the document
    # Groups of layers are a list in the worker's parameters, stated whole.
    one = chosen if not chosen.groups else None
    return QuantizedCheckpointKey(
        graph=graph_of(facts.model.config, NO_WEIGHT),
        weights=Weights(files=weights, adapters=(), draft=None),
        precision=Precision(
            dtype=plan.profile.dtype,
            weights=QuantizationKey(
                algorithm=chosen.method if one else MIXED,
                bits=chosen.bits,
                group_size=chosen.group_size or None,
                symmetric=all(map(is_symmetric, chosen.parts)),
                zero_point=not all(map(is_symmetric, chosen.parts)),
                excluded_modules=tuple(parameters["ignore"]),
            ),
            activations=_activations(one, parameters) if one else None,
            kv_dtype="fp8_e4m3" if parameters.get("kv_cache") else "auto",
            auto_cast=None,
            auto_cast_dtype=None,
            logits_dtype=plan.profile.dtype,
        ),
        calibration=_calibration(samples, parameters) if samples else None,
        sharding=None,
        toolchain=_toolchain(facts, plan),
        invocation=Invocation(
            compiler_args=(),
            engine_args={
                name: _written(value)
                for name, value in sorted(parameters.items())
                if name not in said
            },
            env=dict(env),
        ),
        computed_on=None,
    )


def _toolchain(facts: Facts, plan: Plan) -> Toolchain:
    """Return the tool with its versions; the arithmetic where whoever rounds writes the same."""
    equal = differs(facts, plan) is None
    found = (
        rounding_toolchain(f"{ARITHMETIC}.{LAYOUT}") if equal else toolchain_of(facts.tools[TOOL])
    )
    conversion = facts.model.conversion
    if conversion is None:
        return found
    before = Package(name=CONVERSION, version=conversion.identity, digest=None)
    packages = sorted((*found.packages, before), key=lambda one: one.name)
    return found.model_copy(update={"packages": tuple(packages)})


def _written(value: object) -> str:
    lists = isinstance(value, list) and any(isinstance(one, Mapping) for one in value)
    return json.dumps(value, sort_keys=True) if lists or isinstance(value, Mapping) else str(value)


def _activations(
    chosen: Quantization, parameters: Mapping[str, Any]
) -> ActivationQuantization | None:
    if parameters["method"] in ("smoothquant", "int8"):
        return ActivationQuantization(dtype="int8", granularity="token", dynamic=True)
    if chosen.scheme in _DYNAMIC:
        dtype, sharing = _DYNAMIC[chosen.scheme]
        return ActivationQuantization(dtype=dtype, granularity=sharing, dynamic=True)
    if parameters["method"] != "fp8":
        return None
    granularity = {"dynamic": "token", "static": "tensor", "block": "group"}
    return ActivationQuantization(
        dtype="fp8_e4m3",
        granularity=granularity[parameters["activations"]],
        dynamic=parameters["activations"] != "static",
    )


def _calibration(samples: Samples, parameters: Mapping[str, Any]) -> Calibration:
    return Calibration(
        dataset=samples.digest.removeprefix("sha256:"),
        samples=len(samples.samples),
        sequence_tokens=parameters["max_tokens"],
        seed=parameters["seed"],
    )
