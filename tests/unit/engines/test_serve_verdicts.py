"""What optimum-neuron's own `serve` and vLLM's parser said of options, and what we say.

`data/serve_verdicts.jsonl` was recorded on 2026-11-22: serve.py of 0.4.5 was run with stand-ins
for the Neuron SDK, and vLLM 0.11.1's parser (the image has 0.11.0).  `overrides` is what wins over
what `serve` had decided from the compiled shape, `dropped` what its platform sets whatever is
given: a warning at least.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from packager.core.shape import Shape
from packager.engines.neuron.family import NeuronFamily
from tests.support.engine_plans import plan_for
from tests.support.places import DATA

RECORDED = [
    json.loads(line)
    for line in (DATA / "engines" / "serve_verdicts.jsonl").read_text().splitlines()
    if '"served-model-name"' not in line  # the plan sets it, so the request must say it
]


def case(row: Mapping[str, Any]) -> str:
    return ",".join(f"{name}={value}" for name, value in row["options"].items()) or "plain"


@pytest.mark.parametrize("row", RECORDED, ids=case)
def test_packager_refuses_what_serve_refuses_or_drops_and_nothing_else(
    row: Mapping[str, Any],
) -> None:
    shape = Shape(max_batch=4, max_input_tokens=2048, max_total_tokens=4096)
    asked = tuple(row["options"].items())
    plan = plan_for("neuron-hf", engine_options=asked, tp_degree=24, shape=shape)
    plan = replace(plan, served_name=plan.model.name)
    found = [one for one in NeuronFamily().check(plan) if one.severity != "note"]
    errors = [one.message for one in found if one.severity == "error"]
    dropped = [one.message for one in found if one.code == "key-dropped"]

    said = dropped if row["verdict"] == "dropped" else errors
    assert bool(said) == (row["verdict"] != "accepted"), found
