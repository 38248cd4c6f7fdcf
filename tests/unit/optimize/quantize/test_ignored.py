"""`--quantize-ignore` against the headers, and checkpoints that were quantized in part."""

from __future__ import annotations

from dataclasses import replace

from packager.core.errors import PlanRejected
from packager.core.findings import Finding
from packager.core.model import ModelFiles
from packager.core.tool import ToolFacts
from packager.engines.vllm.family import VllmFamily
from packager.models.checkpoints.gate import inspect_quantized
from packager.optimize.quantize.llmcompressor import LlmCompressorQuantizer
from packager.pipeline.planning.planner import make_plan
from packager.pipeline.planning.services import PlannerServices
from tests.support import zoo
from tests.support.cases import cases_of
from tests.support.headers import TINY, facts_of, model_of, tensor
from tests.support.quantized import arriving

cases = cases_of(__file__)

TOOL = ToolFacts(name="llmcompressor", worker="a" * 64, requirements="b" * 64, packages={})
LATENTS = {"q_a_proj": 128, "kv_a_proj_with_mqa": 576}


def mla() -> ModelFiles:
    """Make a model with the latents of MLA beside what TINY has; no table lists its class."""
    model = model_of(TINY | {"architectures": ["NobodyKnowsForCausalLM"]})
    names = {f"model.layers.0.self_attn.{name}.weight": size for name, size in LATENTS.items()}
    latents = (tensor(name, "BF16", (size, 256)) for name, size in names.items())
    return replace(model, tensors=(*model.tensors, *latents))


def hybrid() -> ModelFiles:
    """Make Qwen3.5's linear attention beside what TINY has."""
    model = model_of(TINY | {"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text"})
    parts = ("qkv", "z", "b", "a")
    names = (f"model.layers.0.linear_attn.in_proj_{part}.weight" for part in parts)
    state = (tensor(name, "BF16", (256, 256)) for name in names)
    return replace(model, tensors=(*model.tensors, *state))


def seeing() -> ModelFiles:
    """Make LLaVA's names, as it is published."""
    config = TINY | {"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava"}
    model = model_of(config | {"vision_config": {"hidden_size": 8}})
    renamed = (one._replace(name=f"language_model.{one.name}") for one in model.tensors)
    return replace(model, tensors=tuple(renamed))


def indexing() -> ModelFiles:
    """Make a layer of MiniMax-M3, whose indexer engines join with its queries and keys."""
    architecture = "MiniMaxM3SparseForCausalLM"
    model = model_of(TINY | {"architectures": [architecture]})
    names = (f"model.layers.0.self_attn.index_{part}_proj.weight" for part in "qk")
    return replace(
        model, tensors=(*model.tensors, *(tensor(one, "BF16", (64, 256)) for one in names))
    )


MODELS = {
    "indexing": indexing(),
    "dense": model_of(TINY),
    "mla": mla(),
    "moe": zoo.mixtral(),
    "hybrid": hybrid(),
    "seeing": seeing(),
}


def findings(model: ModelFiles, ignore: tuple[str, ...]) -> list[Finding]:
    facts = facts_of(model, "ml.p5.48xlarge", quantize="fp8", quantize_ignore=ignore)
    facts = replace(facts, tools={"llmcompressor": TOOL})
    try:
        plan = make_plan(
            facts, PlannerServices(family=VllmFamily(), quantizer=LlmCompressorQuantizer())
        )
        found = (*plan.findings, *LlmCompressorQuantizer().check(facts, plan))
    except PlanRejected as rejected:
        found = rejected.findings
    return [one for one in dict.fromkeys(found) if one.code.startswith("quantize-ignore")]


@cases("what_an_ignore_list_does_wrong_is_said", codes=())
def test_what_an_ignore_list_does_wrong_is_said(
    model: str, ignore: tuple[str, ...], codes: tuple[str, ...], said: str | None, hint: str | None
) -> None:
    found = findings(MODELS[model], ignore)

    assert tuple(one.code for one in found) == codes
    assert all(said in one.message for one in found if said)
    assert all(hint in one.hint for one in found if hint)


@cases("a_checkpoint_that_was_quantized_in_part_is_refused")
def test_a_checkpoint_that_was_quantized_in_part_is_refused(
    plain: tuple[str, ...], said: str
) -> None:
    model = arriving("ct-fp8-dynamic", plain=plain, ignore=[f"re:.*\\.{one}$" for one in plain])
    found = inspect_quantized(model).findings

    assert [one.code for one in found] == (["quantization-fused"] if said else [])
    assert all(said in one.message for one in found)
