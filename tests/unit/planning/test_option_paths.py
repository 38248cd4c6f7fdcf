"""Paths in engine options are compared with what the image holds, whatever the option's name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from packager.core.image import Inline
from packager.core.model import ModelFile
from packager.planning.option_paths import check_option_paths
from tests.support.headers import LOCAL_CPU, TINY, facts_of, model_of, plan_of

MODEL = replace(
    model_of(TINY),
    files=tuple(
        ModelFile(path=path, role="other", content=Inline(b""))
        for path in ("config.json", "law/adapter_model.safetensors")
    ),
)
AT = "/opt/packager/model"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("lora-modules", f"law={AT}/law", None),
        ("lora-modules", f"law={AT}/lwa", f"error did you mean '{AT}/law'?"),
        ("lora-modules", f'{{"name": "law", "path": "{AT}/law"}}', None),
        ("lora-modules", f'[{{"name": "law", "path": "{AT}/../model/lw"}}]', "error did you mean"),
        ("lora_paths", f"a={AT}/law, b={AT}/gone", "error "),
        ("hf-config-path", AT, None),
        ("speculative-config", '{"model": "/opt/packager/draft"}', "error "),
        ("tool-parser-plugin", "/plugins/p.py", "warning the base image must have it"),
        ("chat-template", f"{{{{ '{AT}/gone' }}}}", None),
        ("chat-template", f"file://{AT}/gone", "error "),
        ("hf-config-path", "/opt/packager-else", "warning "),
        ("root-path", "/api", None),
        ("download-dir", "/var/x", None),
        ("download-dir", "/opt/packager/compiled", "error "),
        ("log-config-file", "/dev/shm/x", None),
        ("model-id", "org/name", None),
        ("endpoint", "http://host/a", None),
    ],
)
def test_paths_that_no_layer_has_are_found(name: str, value: str, said: str | None) -> None:
    facts = facts_of(MODEL, LOCAL_CPU)
    plan = replace(plan_of(MODEL, LOCAL_CPU), engine_options=((name, value),))

    found = [f"{one.severity} {one.hint}" for one in check_option_paths(facts, plan)]

    assert len(found) == (0 if said is None else 1)
    assert not said or found[0].startswith(said)
