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
    machine = WRITTEN["machine"] | WRITTEN["machines"][facts.kind]
    tp_degree = changes.get("tp_degree", 1 if facts.kind == "cpu" else 4)
    given: dict[str, Any] = WRITTEN["plan"] | {
        "model": ModelRef(source="hub", name="org/model", revision="0" * 40),
        "profile": LLAMA_8B,
        "instance": Instance(**machine, kind=facts.kind),
        "container": facts,
        "shape": Shape(max_batch=16, max_input_tokens=4096, max_total_tokens=8192),
        "tp_degree": tp_degree,
        "budget": MemoryBudget(tp_degree=tp_degree, **WRITTEN["budget"]),
        "findings": (),
    }
    return Plan(**(given | changes))
