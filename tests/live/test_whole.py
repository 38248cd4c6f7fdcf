"""Nothing is lost and nothing renamed: quantized results against the headers of their sources.

Tiny models with random weights, each of an architecture whose tensors transformers renames, fuses,
takes apart or does not load, quantized by the worker's own code in one process.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.live.checkpoints import Tensors, dequantized, read_tensors
from tests.live.tool_programs import documents_in, run_program
from tests.support.cases import read_tables
from tests.support.commandline import TINY

TABLES = read_tables(__file__)

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500)]

CORPUS = tomllib.loads((Path(__file__).parent / "corpus/whole_models.toml").read_text())
CASES: list[str] = CORPUS["cases"]
LOGITS: dict[str, float] = CORPUS["logits"]
REPLACED = {  # what stands for a weight, by what is told of it in each format
    "compressed-tensors": ("weight_packed", "weight_scale"),
    "awq": ("qweight", "qzeros", "scales"),
}


@dataclass(frozen=True)
class Results:
    place: Path
    report: Mapping[str, Any]

    def source(self, case: str) -> Tensors:
        return read_tensors(self.place / "models" / case.partition(":")[0])

    def tensors(self, case: str) -> Tensors:
        assert "details" in self.report[case], self.report[case]
        return read_tensors(self.place / case.replace(":", "-"))

    def config(self, case: str) -> dict[str, Any]:
        text = (self.place / case.replace(":", "-") / "config.json").read_text()
        config: dict[str, Any] = json.loads(text)
        return config


@pytest.fixture(scope="module")
def results(quantizing_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Results:
    place = tmp_path_factory.mktemp("whole")
    cases = (str(TINY), str(place), *CASES, "tied:nothing")
    run_program(quantizing_python, "whole_models.py", *cases, tools=("llmcompressor",))
    return Results(place, json.loads((place / "report.json").read_text()))


@pytest.fixture(scope="module")
def logits(quantizing_python: Path, results: Results) -> Mapping[str, float | str]:
    cases = (str(results.place), *LOGITS)
    printed = run_program(quantizing_python, "whole_logits.py", *cases, tools=("evaluate",))
    found: dict[str, float | str] = documents_in(printed)[-1]
    return found


@pytest.mark.parametrize("case", LOGITS)
def test_the_evaluating_tool_loads_a_result_and_its_logits_are_near_the_sources(
    logits: Mapping[str, float | str], case: str
) -> None:
    error = logits[case]

    assert isinstance(error, float), error
    assert 0 < error < LOGITS[case]


@pytest.mark.parametrize(
    "case", [one for one in CASES if "granite" not in one and "oss" not in one]
)
def test_every_tensor_has_the_sources_name_shape_and_type_or_its_replacement(
    results: Results, case: str
) -> None:
    source, made = results.source(case), results.tensors(case)
    config = results.config(case)
    method = config["quantization_config"]["quant_method"]
    replaced = 0
    for name, tensor in source.items():
        module = name.removesuffix(".weight")
        if name not in made:
            if name == "lm_head.weight" and config["tie_word_embeddings"]:
                continue
            assert all(f"{module}.{part}" in made for part in REPLACED[method]), name
            replaced += 1
        elif f"{module}.weight_scale" in made:
            assert (made[name].shape, made[name].dtype) in (
                (tensor.shape, "F8_E4M3"),
                (tensor.shape, "I8"),
            ), name
            replaced += 1
        else:
            assert (made[name].shape, made[name].dtype) == (tensor.shape, tensor.dtype), name
    own = {name.rpartition(".")[0] for name in source}
    added = {name for name in made if name.rpartition(".")[0] not in own}
    assert {name.rpartition(".")[2] for name in added} <= {"k_scale", "v_scale"}
    assert replaced > 7


@pytest.mark.parametrize(
    "case", ["mixtral:rtn", "mixtral:fp8", "deepseek:rtn", "qwen3next:rtn", "neox:rtn"]
)
def test_each_weight_is_the_sources_of_that_name(results: Results, case: str) -> None:
    source, made = results.source(case), results.tensors(case)
    quantized = [name.removesuffix(".weight_scale") for name in made if "weight_scale" in name]

    for module in quantized:
        values, half = dequantized(made, module)
        assert (abs(values - source[f"{module}.weight"].values) <= 1.125 * half).all(), module
    assert len(quantized) >= 8


@pytest.mark.parametrize(("case", "container"), [("granitemoe:rtn", "block_sparse_moe.experts")])
def test_experts_that_the_source_has_in_one_tensor_come_one_by_one(
    results: Results, case: str, container: str
) -> None:
    source, made = results.source(case), results.tensors(case)
    fused = source["model.layers.1.block_sparse_moe.input_linear.weight"].values
    down = source["model.layers.1.block_sparse_moe.output_linear.weight"].values

    for expert in range(4):
        path = f"model.layers.1.{container}.{expert}"
        for part, meant in (
            ("gate_proj", fused[expert, :128]),
            ("up_proj", fused[expert, 128:]),
            ("down_proj", down[expert]),
        ):
            values, half = dequantized(made, f"{path}.{part}")
            assert (abs(values - meant) <= 1.125 * half).all(), (expert, part)


def test_gate_and_up_that_alternate_in_the_source_come_apart(results: Results) -> None:
    source, made = results.source("gptoss:fp8"), results.tensors("gptoss:fp8")
    path = "model.layers.0.mlp.experts"
    fused, bias = (source[f"{path}.gate_up_proj{end}"].values for end in ("", "_bias"))

    for part, first in (("gate_proj", 0), ("up_proj", 1)):
        values, half = dequantized(made, f"{path}.3.{part}")
        assert (abs(values - fused[3][:, first::2].T) <= 1.125 * half).all()
        assert (made[f"{path}.3.{part}.bias"].values == bias[3][first::2]).all()


@pytest.mark.parametrize(
    ("cases", "branch", "count"),
    [
        ([case for case in CASES if case.startswith("deepseek")], "model.layers.2.", 30),
        (["qwen3next:rtn", "qwen3next:gemm"], "mtp.", 27),
        (["neox:rtn"], "gpt_neox.layers.", 6),
    ],
    ids=["deepseek", "qwen3-next", "buffers-of-neox"],
)
def test_what_the_library_does_not_load_comes_back(
    results: Results, cases: list[str], branch: str, count: int
) -> None:
    for case in cases:
        source, made = results.source(case), results.tensors(case)
        back = [name for name in source if made.get(name) == source[name]]
        assert sum(name.startswith(branch) for name in back) >= count
        (note,) = (note for note in results.report[case]["notes"] if "the source's own" in note)
        assert note.startswith(f"{count} tensors that the library does not load are the source's")


def test_modules_that_came_back_are_declared_unquantized(results: Results) -> None:
    deepseek = results.config("deepseek:gptq")
    ignored = deepseek["quantization_config"]["ignore"]
    awq = results.config("qwen3next:gemm")["quantization_config"]["modules_to_not_convert"]

    assert deepseek["num_nextn_predict_layers"] == 1
    assert {"lm_head", "model.layers.1.mlp.gate", "model.layers.2.eh_proj"} <= set(ignored)
    assert "model.layers.2.mlp.experts.3.down_proj" in ignored
    assert not [name for name in ignored if "norm" in name or "layers.0." in name]
    assert {"mtp.", "mtp.fc", "mtp.layers.0.self_attn.q_proj", "lm_head"} <= set(awq)
    assert (
        "model.layers.2."
        in results.config("deepseek:gemm")["quantization_config"]["modules_to_not_convert"]
    )


def test_modules_that_stay_whole_are_listed_under_the_sources_names(results: Results) -> None:
    for case in ("mixtral:fp8", "mixtral:awq"):
        assert (
            sorted(results.config(case)["quantization_config"]["ignore"])
            == TABLES["modules_that_stay_whole_are_listed_under_the_sources_names"]
        )
    neox = results.config("neox:rtn")["quantization_config"]["ignore"]
    assert neox == ["embed_out", "lm_head"]  # transformers asks for its own name of the head


def test_where_weights_lie_meanwhile_changes_nothing(results: Results) -> None:
    assert any("the rest on disk" in note for note in results.report["mixtral:disk"]["notes"])
    assert results.tensors("mixtral:disk") == results.tensors("mixtral:gptq")
    assert results.config("mixtral:disk") == results.config("mixtral:gptq")


def test_a_model_of_which_nothing_is_quantized_is_refused(results: Results) -> None:
    assert results.report["tied:nothing"]["failed"].startswith("nothing of the model was quantized")


def test_experts_left_out_by_the_sources_names_stay_the_sources(results: Results) -> None:
    for case in ("mixtral:partly", "gptoss:partly", "granitemoe:named"):
        source, made = results.source(case), results.tensors(case)
        experts = [name for name in source if ".experts." in name or "_linear" in name]
        assert experts
        assert all(made[name] == source[name] for name in experts)
        assert "model.layers.0.self_attn.q_proj.weight_packed" in made
    ignored = results.config("mixtral:partly")["quantization_config"]["ignore"]
    path = "model.layers.1.block_sparse_moe.experts.3"
    assert {f"{path}.w1", f"{path}.gate_proj"} <= set(ignored)  # vLLM before 0.31 asks for the last


def test_a_head_that_equals_the_embedding_stays_unless_the_source_ties_them(
    results: Results,
) -> None:
    for case in ("untied:fp8", "untied:gemm"):
        source, made = results.source(case), results.tensors(case)
        assert made["lm_head.weight"] == source["lm_head.weight"]
        assert results.config(case)["tie_word_embeddings"] is False
    assert "lm_head.weight" not in results.tensors("tied:rtn")
    assert results.config("tied:rtn")["tie_word_embeddings"] is True


def test_a_norm_in_32_bits_stays_so(results: Results) -> None:
    source, made = results.source("wide:awq"), results.tensors("wide:awq")

    assert made["model.norm.weight"] == source["model.norm.weight"]
    assert made["model.norm.weight"].dtype == "F32"


def test_text_generation_inference_finds_the_experts_of_mixtral(results: Results) -> None:
    """Check against its rule, written out: a list of each expert's w1, w3 and w2 by name.

    text-generation-inference, models/custom_modeling/flash_mixtral_modeling.py: BlockSparseMoE
    loads `{prefix}.experts.{i}.{gate_proj_name}` with gate_proj_name="w1", up_proj_name="w3",
    down_proj_name="w2", and `{prefix}.gate`, where the prefix ends in `block_sparse_moe`.
    """
    made = results.tensors("mixtral:gemm")

    for layer in range(2):
        prefix = f"model.layers.{layer}.block_sparse_moe"
        assert f"{prefix}.gate.weight" in made
        for expert in range(4):
            for name in ("w1", "w3", "w2"):
                found = {
                    part: made[f"{prefix}.experts.{expert}.{name}.{part}"]
                    for part in ("qweight", "qzeros", "scales")
                }
                inputs, outputs = 128, 128
                assert found["qweight"].shape == (inputs, outputs // 8)
                assert found["qzeros"].shape == (inputs // 32, outputs // 8)
                assert found["scales"].shape == (inputs // 32, outputs)


@pytest.mark.parametrize(("how", "says"), CORPUS["damaged"].items(), ids=CORPUS["damaged"])
def test_a_result_that_lost_tensors_is_refused_by_their_names(
    results: Results, how: str, says: str
) -> None:
    assert results.report["damaged"][how] == says
