"""The worker that builds TensorRT-LLM engines, by contract.

TensorRT-LLM cannot be installed here.  `trtllm-build`, `nvidia-smi` and the package
`tensorrt_llm` are small stand-ins, in this file alone: they take the documented arguments
and leave the documented layout.  No engine is built and no GPU is used.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.workers import ROOT, load

TOOL = ROOT / "containers" / "tools" / "tensorrt-llm"
ENGINE = load(TOOL / "engine.py")

# As trtllm-build 0.21 writes it, without the fields that nobody compares; what a plan expects.
_MADE = json.loads((Path(__file__).parent / "corpus" / "tensorrt_llm_worker.json").read_text())
CONFIG: dict[str, Any] = _MADE["config"]
EXPECTED: dict[str, Any] = _MADE["expected"]


def other_config(dotted: str, value: object) -> dict[str, Any]:
    config = json.loads(json.dumps(CONFIG))
    *above, last = dotted.split(".")
    place = config
    for name in above:
        place = place[name]
    place[last] = value
    return dict(config)


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """An engine of two ranks whose weights are 1000 bytes each."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    for rank in range(2):
        (tmp_path / f"rank{rank}.engine").write_bytes(b"e" * 1000)
    return tmp_path


WEIGHTS = {0: 1000, 1: 1000}


def test_the_engine_of_the_plan_is_taken(built: Path) -> None:
    ENGINE.check_engine(built, EXPECTED, WEIGHTS)


@pytest.mark.parametrize("field", EXPECTED)
def test_an_engine_whose_config_disagrees_is_refused(built: Path, field: str) -> None:
    (built / "config.json").write_text(json.dumps(other_config(field, "other")))

    with pytest.raises(ENGINE.WrongEngine, match=f"{field} is 'other', not"):
        ENGINE.check_engine(built, EXPECTED, WEIGHTS)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}"])
def test_a_directory_that_is_no_engine_is_refused(built: Path, text: str) -> None:
    (built / "config.json").write_text(text)

    with pytest.raises(ENGINE.WrongEngine, match=r"config\.json"):
        ENGINE.check_engine(built, EXPECTED, WEIGHTS)


@pytest.mark.parametrize("size", [0, 1, 499])
def test_a_truncated_engine_is_refused(built: Path, size: int) -> None:
    (built / "rank1.engine").write_bytes(b"e" * size)

    with pytest.raises(ENGINE.WrongEngine, match=rf"rank1\.engine is cut off: {size} bytes"):
        ENGINE.check_engine(built, EXPECTED, WEIGHTS)


def test_an_engine_with_a_rank_too_few_or_too_many_is_refused(built: Path) -> None:
    (built / "rank2.engine").write_bytes(b"e" * 1000)
    with pytest.raises(ENGINE.WrongEngine, match="the engine has"):
        ENGINE.check_engine(built, EXPECTED, WEIGHTS)
    (built / "rank2.engine").unlink()
    (built / "rank1.engine").unlink()
    with pytest.raises(ENGINE.WrongEngine, match="the engine has"):
        ENGINE.check_engine(built, EXPECTED, WEIGHTS)
