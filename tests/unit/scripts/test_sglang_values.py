"""What `scripts/engine-options sglang` reads out of SGLang's source beside its parser."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.places import ROOT

SCRIPT = ROOT / "scripts" / "_sglang_values.py"
SOURCES = {
    "eplb/eplb_algorithms/__init__.py": """
class EplbAlgorithm(Enum):
    deepseek = auto()
    elasticity_aware = auto()
""",
    "layers/quantization/__init__.py": """
BASE_QUANTIZATION_METHODS: dict = {"fp8": Fp8Config, "awq": AWQConfig}
if is_cuda():
    BASE_QUANTIZATION_METHODS.update({"mxfp4": Mxfp4Config})
if is_npu():
    BASE_QUANTIZATION_METHODS.update({"gptq": GPTQAscendConfig})
""",
    "parser/conversation.py": """
register_conv_template(Conversation(name="chatml", sep="x"))
register_conv_template(Conversation(name="llama-2"))
""",
    "disaggregation/kv_events.py": """
class KVEventsConfig(BaseModel):
    publisher: str = "null"
    hwm: int = 1
    replay_endpoint: Optional[str] = None
    format: Literal["default", "dynamo"] = "default"

class EventPublisherFactory:
    _registry: dict = {"null": Null, "zmq": Zmq}
""",
    "model_executor/cuda_graph_config.py": """
class Phase:
    DECODE = "decode"
    PREFILL = "prefill"

class Backend:
    FULL = "full"
    DISABLED = "disabled"

ALLOWED_BACKENDS_PER_PHASE = {
    Phase.DECODE: (Backend.FULL, Backend.DISABLED),
    Phase.PREFILL: (Backend.DISABLED,),
}
ALLOWED_KEYS_PER_PHASE = {
    Phase.DECODE: ("backend", "bs"),
    Phase.PREFILL: ("backend", "max_bs"),
}
""",
    "model_loader/loader.py": """
class DefaultModelLoader:
    def __init__(self, load_config):
        allowed_keys = {"enable_multithread_load", "num_threads"}
        allowed_keys.add("enable_gds")

class ShardedStateLoader:
    def __init__(self, load_config):
        self.pattern = extra_config.pop("pattern", None)
        other.pop("nothing of it")
""",
    "speculative/draft_utils.py": """
def decode():
    backend_map = {"fa3": 1, "triton": 2}

def extend():
    backend_map = {"triton": 1, "flashinfer": 2}
""",
}


@pytest.fixture(scope="module")
def values() -> ModuleType:
    spec = importlib.util.spec_from_file_location("_sglang_values", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def options(values: ModuleType, tmp_path: Path) -> dict[str, Any]:
    """Return the rows of options, with the classes under `configs`."""
    for name, text in SOURCES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    names = ("eplb-algorithm", "chat-template", "kv-events-config", "cuda-graph-config")
    more = ("model-loader-extra-config", "speculative-draft-attention-backend", "offload-mode")
    rows: dict[str, Any] = {name: {"type": "text"} for name in (*names, *more)}
    rows["quantization"] = {"type": "text", "choices": ["fp8", "awq", "gptq", "mxfp4", "marlin"]}
    return rows | {"configs": values.add_values(tmp_path, rows)}


def test_names_are_those_that_the_engine_looks_up(options: dict[str, Any]) -> None:
    assert options["eplb-algorithm"]["values"] == ["auto", "deepseek", "elasticity_aware"]
    assert options["quantization"]["values"] == ["fp8", "awq", "mxfp4"]
    assert options["chat-template"] == {
        "type": "text",
        "values": ["chatml", "llama-2"],
        "files": True,
    }


def test_attention_of_drafts_is_what_proposing_and_extending_have(options: dict[str, Any]) -> None:
    assert options["speculative-draft-attention-backend"]["values"] == ["triton"]


def test_json_is_of_the_classes_that_the_engine_makes_of_it(options: dict[str, Any]) -> None:
    configs = options["configs"]
    assert options["kv-events-config"] == {"type": "json", "config": "KVEventsConfig"}
    assert configs["KVEventsConfig"]["fields"] == {
        "publisher": {"type": "text", "choices": ["null", "zmq"]},
        "hwm": {"type": "int"},
        "replay_endpoint": {"type": "text", "optional": True},
        "format": {"type": "text", "choices": ["default", "dynamo"]},
    }
    assert configs["PhaseConfig[decode]"]["fields"] == {
        "backend": {"type": "text", "choices": ["full", "disabled"]},
        "bs": {"type": "list", "optional": True},
    }
    assert list(configs["PhaseConfig[prefill]"]["fields"]) == ["backend", "max_bs"]
    assert configs["LoaderConfig"]["fields"] == {
        "enable_gds": {"type": "bool"},
        "enable_multithread_load": {"type": "any"},
        "num_threads": {"type": "int"},
        "pattern": {"type": "text"},
    }


def test_a_module_that_moved_is_said_and_nothing_is_made_up(
    values: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows: dict[str, Any] = {"offload-mode": {"type": "text"}}

    assert values.add_values(tmp_path, rows) == {}
    assert rows == {"offload-mode": {"type": "text"}}
    assert "no names for offload-mode: has its module moved?" in capsys.readouterr().err
