"""Keys of config.json that versions of engines read, and transformers 5 writes otherwise.

`tests/live/test_engine_weights.py` holds the table against SGLang's own loader.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from packager.catalog.containers import find_container
from packager.core.errors import PlanRejected
from packager.engines.config_keys import check_config_keys
from tests.support.cases import cases
from tests.support.headers import LLAMA_3_8B, model_of, plan_of
from tests.support.zoo import files


@cases("said", engine="sglang", version="0.5.23", tensors=[], options={}, words=[])
def test_a_key_that_the_engine_reads_is_asked_for_with_its_value(
    engine: str,
    version: str,
    config: str,
    tensors: list[str],
    options: dict[str, str],
    words: list[str],
) -> None:
    model = files(json.loads(config), dict.fromkeys(tensors, ("BF16", (8, 8))))
    container = replace(find_container(engine, "nvidia"), engine_version=version)

    found = [*check_config_keys(container, model, options)]

    told = " ".join(f"{one.message}; {one.hint}" for one in found)
    assert [word for word in words if word not in told] == []
    assert bool(words) is bool(found)


def test_a_plan_is_refused_where_positions_would_be_others() -> None:
    config = {**LLAMA_3_8B, "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}

    with pytest.raises(PlanRejected) as rejected:
        plan_of(model_of(config), "ml.g6.12xlarge", family="tgi")

    assert [one.code for one in rejected.value.findings if one.severity == "error"] == [
        "config-keys"
    ]
