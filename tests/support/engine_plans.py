"""Plans written out by hand, so that families are tested without the planner.

What they are made of lies in data/engines/plans.toml.
"""

from __future__ import annotations

import tomllib
from typing import Any

from packager.core.facts import ContainerFacts
from packager.core.instance import Instance
from packager.core.model import ModelProfile, ModelRef
from packager.core.plan import MemoryBudget, Plan
from packager.core.shape import Shape
from packager.core.techniques import Draft, Quantization
from packager.core.units import GIB
from tests.support.doubles.containers import with_traits
from tests.support.places import DATA

WRITTEN = tomllib.loads((DATA / "engines" / "plans.toml").read_text(encoding="utf-8"))
CONTAINERS = {
    name: with_traits(ContainerFacts(**{"version": "", "default_base": "", **row}))
    for name, row in WRITTEN["containers"].items()
}
PROFILES = {name: ModelProfile(**row) for name, row in WRITTEN["profiles"].items()}
DRAFTS = {name: Draft(**row) for name, row in WRITTEN["drafts"].items()}
QUANTIZATIONS = {name: Quantization(**row) for name, row in WRITTEN["quantizations"].items()}

MIXTRAL, LLAMA_8B = PROFILES["mixtral"], PROFILES["llama"]
AWQ, PACKED, FP8_AT_LOAD = (QUANTIZATIONS[name] for name in ("awq", "packed", "fp8"))
MEDUSA_V1, EAGLE3 = DRAFTS["medusa"], DRAFTS["eagle3"]
DRAFT_MODEL, NGRAM = DRAFTS["draft_model"], DRAFTS["ngram"]


def plan_for(container: str, **changes: Any) -> Plan:
    """A plan of Llama 3 8B for a container of the table, with some fields given."""
    facts = CONTAINERS[container]
    machine = WRITTEN["machines"][facts.kind]
    tp_degree = changes.get("tp_degree", 1 if facts.kind == "cpu" else 4)
    given: dict[str, Any] = {
        "model": ModelRef(source="hub", name="org/model", revision="0" * 40),
        "profile": LLAMA_8B,
        "instance": Instance(
            **machine,
            kind=facts.kind,
            device_name="some device",
            device_bytes=24 * GIB,
            host_bytes=192 * GIB,
            vcpus=48,
        ),
        "container": facts,
        "served_name": "chat",
        "shape": Shape(max_batch=16, max_input_tokens=4096, max_total_tokens=8192),
        "tp_degree": tp_degree,
        "dtype": "bf16",
        "precision": "bf16",
        "budget": MemoryBudget(
            tp_degree=tp_degree,
            device_bytes=24 * GIB,
            usable_bytes=20 * GIB,
            weights_bytes=8 * GIB,
            activations_bytes=1 * GIB,
            overhead_bytes=1 * GIB,
            kv_bytes_per_token=32768,
            kv_bytes=4 * GIB,
        ),
        "findings": (),
    }
    return Plan(**(given | changes))
