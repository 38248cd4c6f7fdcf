"""What `scripts/engine-options sglang` reads out of SGLang's source beside its parser."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.cases import read_tables
from tests.support.places import ROOT
from tests.support.workers import load

TABLES = read_tables(__file__)

SCRIPT = ROOT / "scripts" / "_sglang_values.py"
SOURCES = Path(__file__).parent / "corpus" / "sglang"  # modules of the engine, as `.py.txt`


@pytest.fixture(scope="module")
def values() -> ModuleType:
    return load(SCRIPT)


@pytest.fixture
def options(values: ModuleType, tmp_path: Path) -> dict[str, Any]:
    """Return the rows of options, with the classes under `configs`."""
    for source in SOURCES.rglob("*.txt"):
        place = tmp_path / source.relative_to(SOURCES).with_suffix("")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    names = ("eplb-algorithm", "chat-template", "kv-events-config", "cuda-graph-config")
    more = ("model-loader-extra-config", "speculative-draft-attention-backend", "offload-mode")
    rows: dict[str, Any] = {name: {"type": "text"} for name in (*names, *more)}
    rows["quantization"] = {"type": "text", "choices": ["fp8", "awq", "gptq", "mxfp4", "marlin"]}
    return rows | {"configs": values.add_values(tmp_path, rows)}


def test_names_are_those_that_the_engine_looks_up(options: dict[str, Any]) -> None:
    assert options["eplb-algorithm"]["values"] == ["auto", "deepseek", "elasticity_aware"]
    assert options["quantization"]["values"] == ["fp8", "awq", "mxfp4"]
    assert options["chat-template"] == TABLES["chat_template"]


def test_attention_of_drafts_is_what_proposing_and_extending_have(options: dict[str, Any]) -> None:
    assert options["speculative-draft-attention-backend"]["values"] == ["triton"]


def test_json_is_of_the_classes_that_the_engine_makes_of_it(options: dict[str, Any]) -> None:
    configs = options["configs"]
    assert options["kv-events-config"] == {"type": "json", "config": "KVEventsConfig"}
    assert configs["KVEventsConfig"]["fields"] == TABLES["kv_events_fields"]
    assert configs["PhaseConfig[decode]"]["fields"] == TABLES["phase_fields"]
    assert list(configs["PhaseConfig[prefill]"]["fields"]) == ["backend", "max_bs"]
    assert configs["LoaderConfig"]["fields"] == TABLES["loader_fields"]


def test_a_module_that_moved_is_said_and_nothing_is_made_up(
    values: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows: dict[str, Any] = {"offload-mode": {"type": "text"}}

    assert values.add_values(tmp_path, rows) == {}
    assert rows == {"offload-mode": {"type": "text"}}
    assert "no names for offload-mode: has its module moved?" in capsys.readouterr().err
