"""Paths in engine options are compared with what the image holds, whatever the option's name."""

from __future__ import annotations

from dataclasses import replace

from packager.core.image import Inline
from packager.core.model import ModelFile
from packager.pipeline.planning.option_paths import check_option_paths
from tests.support.cases import cases_of
from tests.support.headers import LOCAL_CPU, TINY, facts_of, model_of, plan_of

cases = cases_of(__file__)


MODEL = replace(
    model_of(TINY),
    files=tuple(
        ModelFile(path=path, role="other", content=Inline(b""))
        for path in ("config.json", "law/adapter_model.safetensors")
    ),
)


@cases("paths_that_no_layer_has_are_found")
def test_paths_that_no_layer_has_are_found(name: str, value: str, said: str | None) -> None:
    facts = facts_of(MODEL, LOCAL_CPU)
    plan = replace(plan_of(MODEL, LOCAL_CPU), engine_options=((name, value),))

    found = [f"{one.severity} {one.hint}" for one in check_option_paths(facts, plan)]

    assert len(found) == (0 if said is None else 1)
    assert not said or found[0].startswith(said)
