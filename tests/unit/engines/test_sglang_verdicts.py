"""SGLang's own verdicts of fourteen versions against packager's, request by request.

`data/sglang_verdicts.jsonl` was recorded by `scripts/sglang-verdicts`: the engine's parser and
start-up checks, with a pretended device.  A letter stands for each version.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from packager.engines.capability import check_capability
from packager.engines.schema import EngineSchema, find_schema
from packager.engines.sglang.check import check_options
from tests.support.cases import read_tables
from tests.support.places import DATA

FILE = DATA / "engines" / "sglang_verdicts.jsonl"
HEAD, *ROWS = (json.loads(line) for line in FILE.read_text("utf-8").splitlines())
DENSE = read_tables(__file__)["dense"]
MODELS: dict[str, dict[str, Any]] = {
    "dense": DENSE,
    "moe": DENSE | {"architecture": "Qwen3MoeForCausalLM", "experts": 128},
    "mla": DENSE | {"architecture": "DeepseekV3ForCausalLM", "experts": 256, "attention": "mla"},
}


def is_refused(row: dict[str, Any], schema: EngineSchema) -> bool:
    options = {}
    for name, value in row["options"].items():
        option = schema.find(name)
        options[option.name if option is not None else name] = value
    facts = MODELS[row["model"]] | {"compute_capability": row["sm"]}
    found = [*check_options(options, schema, facts, version=schema.version, one_word=False)]
    found += check_capability("SGLang", "sglang", schema.version, options, facts)
    return any(finding.severity == "error" for finding in found)


@pytest.mark.parametrize("version", HEAD["versions"])
def test_packager_refuses_what_this_sglang_refuses_or_changes(version: str) -> None:
    schema = find_schema("sglang", version)
    place = HEAD["versions"].index(version)
    differ = {
        row["id"]: verdict
        for row in ROWS
        if (verdict := row["verdicts"][place]) != "?"
        and is_refused(row, schema) is not (verdict in "RD")
    }

    assert differ == {}
