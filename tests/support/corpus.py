"""The corpus of requests: what engines were asked for, and what each engine's version said.

A row of `data/corpus/FAMILY.jsonl` asks for options on top of a plan written out here.  Its
`verdicts` were recorded by `scripts/engine-verdicts`, which gives the configuration that packager
renders to the engine's own parser and checks: see docs/engine-versions.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from packager.core.facts import ContainerFacts
from packager.core.findings import Finding
from packager.core.instance import Instance, gpu_formats
from packager.core.plan import Plan
from packager.core.units import GIB
from tests.golden.cases import family_of
from tests.support.engine_plans import (
    CONTAINERS,
    DRAFTS,
    FP8_AT_LOAD,
    LLAMA_8B,
    MIXTRAL,
    WRITTEN,
    plan_for,
)
from tests.support.engine_plans import PROFILES as WRITTEN_OUT
from tests.support.places import DATA

CORPUS = DATA / "engines" / "corpus"
FAMILIES = ("vllm", "sglang", "lmi", "tgi", "neuron")

# What is said of a version: `accepted`; `refused`, in the engine's words; `dropped`, when the
# engine starts and what was asked for has no effect; `undecided`, when no consumer here can tell.
VERDICTS = ("accepted", "refused", "dropped", "undecided")

# What packager refuses for its own reasons, whatever the engine says of it.
# Verdicts were recorded without a device: no engine said there that a backend is not for it.
DEVICES_OF = ("attention-unsupported", "experts-unsupported", "option-not-for-device")
POLICIES = frozenset(("remote-code", "credential-in-image", *DEVICES_OF))

# Models as the engines get them: config.json of the real size, without weights.
PROFILES = {
    "llama": replace(LLAMA_8B, model_type="llama"),
    "mixtral": replace(
        MIXTRAL, model_type="mixtral", experts=8, experts_per_token=2, expert_size=14336
    ),
    "mla": WRITTEN_OUT["mla"],
}
GPUS = Instance(
    name="ml.p5.48xlarge",
    kind="nvidia",
    device_name="H100",
    devices=8,
    device_bytes=80 * GIB,
    host_bytes=2048 * GIB,
    vcpus=192,
    compute_capability=9.0,
    formats=gpu_formats(9.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, for one model. `verdicts` gives each version's, with the engine's words."""

    family: str
    name: str
    source: str  # where people ask so: `vLLM docs, tool calling`, `adversarial`
    options: Mapping[str, str]
    model: str = "llama"
    plan: Mapping[str, Any] = field(default_factory=dict)  # what the plan decides otherwise
    verdicts: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def read_corpus(family: str) -> Iterator[Request]:
    """Read the requests of a family, in the order of its file."""
    for line in (CORPUS / f"{family}.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        yield Request(
            family=family,
            name=row["id"],
            source=row["from"],
            options=row["options"],
            model=row.get("model", "llama"),
            plan=row.get("plan", {}),
            verdicts={
                version: (verdict, words)
                for verdict, versions in row["verdicts"].items()
                for version, words in versions.items()
            },
        )


def plan_of(request: Request, version: str) -> Plan:
    """Write out the plan of a request for a version of the engine or of the container."""
    return replace(
        _base_plan(
            request.family, version, request.model, json.dumps(request.plan, sort_keys=True)
        ),
        engine_options=tuple(request.options.items()),
    )


def judge(request: Request, version: str) -> tuple[str, tuple[Finding, ...]]:
    """Return packager's verdict, and its findings beyond those of the plan without options.

    `policy` is a refusal for packager's own reasons; `warned` an acceptance with a warning.
    """
    plan = plan_of(request, version)
    without = _findings(
        request.family, version, request.model, json.dumps(request.plan, sort_keys=True)
    )
    found = tuple(family_of(request.family).check(plan))
    errors = [one for one in found if one.severity == "error"]
    if errors:
        is_policy = all(one.code in POLICIES for one in errors)
        return ("policy" if is_policy else "refused"), tuple(errors)
    warned = tuple(one for one in found if one.severity == "warning" and one not in without)
    return ("warned" if warned else "accepted"), warned


def container_of(family: str, version: str) -> ContainerFacts:
    """Describe the container that a version of the corpus means.

    `0.27.1` of vLLM and SGLang is upstream's image, which gets a command line;
    `0.27.1-sagemaker` is AWS's, which gets variables.  LMI's versions are its releases.
    """
    if family == "neuron":
        return CONTAINERS[WRITTEN["corpus"]["neuron"][version]]
    written = CONTAINERS[family]
    if family == "lmi":
        engine = WRITTEN["corpus"]["lmi"][version]
        number = f"0.36.0-lmi{version}.0.0"
        return replace(written, engine_version=engine, version=number, release=version)
    engine, _, image = version.partition("-")
    is_upstream = image == "upstream" if family == "tgi" else image != "sagemaker"
    variant = "upstream" if is_upstream else ""
    return replace(written, engine_version=engine, version=version, variant=variant)


@cache
def _base_plan(family: str, version: str, model: str, changes: str) -> Plan:
    given = json.loads(changes)
    if "draft" in given:
        given["draft"] = DRAFTS[given["draft"]]
    if "quantization" in given:
        given["quantization"] = replace(FP8_AT_LOAD, method=given["quantization"])
    container = container_of(family, version)
    on_neuron = container.kind == "neuron"
    plan = plan_for(
        "neuron-hf" if on_neuron else "vllm-upstream",
        profile=PROFILES[model],
        tp_degree=8 if on_neuron else 2,
        **given,
    )
    return replace(plan, container=container, instance=plan.instance if on_neuron else GPUS)


@cache
def _findings(family: str, version: str, model: str, changes: str) -> frozenset[Finding]:
    plan = _base_plan(family, version, model, changes)
    return frozenset(family_of(family).check(plan))
