"""Pairs that no engine could serve: refused from headers, in a moment, with a way out.

Nothing here has a byte of weights, so none can have been read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from packager.catalog.compatibility import rules
from packager.catalog.containers import find_container
from packager.core.image import Inline
from packager.core.model import ModelFile, ModelFiles
from packager.core.plan import Plan
from packager.engines.lmi.family import LmiFamily
from packager.engines.neuron.family import NeuronFamily
from packager.engines.sglang.family import SglangFamily
from packager.engines.tgi.family import TgiFamily
from packager.engines.vllm.family import VllmFamily
from packager.errors import PlanRejected
from packager.findings import Finding, errors_in
from packager.planning.planner import make_plan
from tests.support import heads, mtp_models, zoo
from tests.support.headers import AWQ_G128, LLAMA_3_8B, TINY, awq_model_of, facts_of, model_of

FAMILIES = {
    family.name: family
    for family in (VllmFamily(), LmiFamily(), TgiFamily(), SglangFamily(), NeuronFamily())
}
LLAMA = model_of(LLAMA_3_8B)
QWEN3 = LLAMA_3_8B | {"architectures": ["Qwen3ForCausalLM"], "vocab_size": 151936}
SMALL = TINY | {"vocab_size": 128256}
AWQ = awq_model_of(LLAMA_3_8B)
HEAD = heads.eagle3(LLAMA_3_8B)
SPECULATORS = heads.eagle3_of_speculators(LLAMA_3_8B)
MEDUSA = zoo.medusa(3, 4096, 128256)
PEAGLE = heads.peagle(LLAMA_3_8B)
PARALLEL = heads.peagle_of_speculators(LLAMA_3_8B)
DFLASH = heads.dflash(LLAMA_3_8B)
BLOCKS = heads.dflash_of_speculators(LLAMA_3_8B)
GEMMA = mtp_models.gemma_4()
GEMMA_4 = mtp_models.GEMMA_4
ASSISTANT = heads.assistant(GEMMA_4)
OWN = {"target_layer_ids": [1, 9, 17, 25, 29], "mask_token_id": 7}
LAYER = "midlayer.self_attn.q_proj.weight"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A model and a draft that do not go together, and what must be said."""

    id: str
    kind: str  # as a request spells it; "" for a draft model
    draft: ModelFiles
    code: str
    model: ModelFiles = LLAMA
    family: str = "vllm"
    instance: str = "g5.12xlarge"
    asked: Mapping[str, Any] = field(default_factory=dict)


def small(**changed: Any) -> ModelFiles:
    return model_of(SMALL | changed)


PAIRS = (
    # Vocabulary and tokenizer.
    Pair(id="vocabulary", kind="", draft=model_of(TINY), code="draft-vocabulary"),
    Pair(
        id="begin-of-text",
        kind="",
        draft=small(bos_token_id=1),
        model=model_of(LLAMA_3_8B | {"bos_token_id": 128000}),
        code="draft-tokenizer",
    ),
    Pair(
        id="end-of-text",
        kind="",
        draft=small(eos_token_id=2),
        model=model_of(LLAMA_3_8B | {"eos_token_id": [128001, 128009]}),
        code="draft-tokenizer",
    ),
    Pair(
        id="eagle3-vocabulary",
        kind="eagle3:",
        draft=heads.eagle3(QWEN3),
        code="draft-vocabulary",
    ),
    Pair(
        id="eagle3-larger-vocabulary",
        kind="eagle3:",
        draft=heads.eagle3(LLAMA_3_8B, draft_vocab=200_000, vocab_size=128256),
        code="draft-vocabulary",
    ),
    Pair(
        id="eagle3-without-map",
        kind="eagle3:",
        draft=heads.without(HEAD, "d2t"),
        code="draft-mapping",
    ),
    Pair(
        id="eagle3-short-map",
        kind="eagle3:",
        draft=heads.with_shapes(HEAD, {"d2t": ("I64", (31999,))}),
        code="draft-mapping",
    ),
    Pair(
        id="eagle3-mask-of-another-model",
        kind="eagle3:",
        draft=heads.with_shapes(HEAD, {"t2d": ("BOOL", (151936,))}),
        code="draft-mapping",
    ),
    Pair(
        id="eagle3-map-of-floats",
        kind="eagle3:",
        draft=heads.with_shapes(HEAD, {"d2t": ("BF16", (32000,))}),
        code="draft-mapping",
    ),
    # Hidden size, heads, layers.
    Pair(
        id="eagle-hidden-size",
        kind="eagle:",
        draft=heads.eagle(LLAMA_3_8B | {"hidden_size": 5120}),
        code="draft-shape",
    ),
    Pair(
        id="eagle3-hidden-states",
        kind="eagle3:",
        draft=heads.with_shapes(HEAD, {"fc.weight": ("BF16", (4096, 3 * 5120))}),
        code="draft-shape",
    ),
    Pair(
        id="eagle3-two-hidden-states",
        kind="eagle3:",
        draft=heads.with_shapes(HEAD, {"fc.weight": ("BF16", (4096, 2 * 4096))}),
        code="draft-shape",
    ),
    Pair(
        id="eagle3-attention-heads",
        kind="eagle3:",
        draft=replace(HEAD, config={**HEAD.config, "num_attention_heads": 16, "head_dim": 128}),
        code="draft-shape",
    ),
    Pair(
        id="eagle3-no-numbers",
        kind="eagle3:",
        draft=replace(HEAD, config={"architectures": ["LlamaForCausalLMEagle3"]}),
        code="draft-config",
    ),
    Pair(
        id="eagle3-layer-that-is-not-there",
        kind="eagle3:",
        draft=heads.eagle3(LLAMA_3_8B, eagle_aux_hidden_state_layer_ids=[2, 24, 45]),
        code="draft-aux-layers",
    ),
    Pair(
        id="eagle3-one-layer-twice",
        kind="eagle3:",
        draft=heads.eagle3_of_speculators(LLAMA_3_8B, eagle_aux_hidden_state_layer_ids=[2, 2, 29]),
        code="draft-aux-layers",
    ),
    Pair(
        id="eagle3-model-of-four-layers",
        kind="eagle3:",
        model=model_of(TINY),
        draft=heads.eagle3(TINY, draft_vocab=1024),
        instance="g5.xlarge",
        code="draft-aux-layers",
    ),
    Pair(
        id="eagle3-second-layer-missing",
        kind="eagle3:",
        draft=heads.eagle3(LLAMA_3_8B, num_hidden_layers=2),
        code="draft-truncated",
    ),
    Pair(
        id="medusa-hidden-size",
        kind="medusa:",
        family="tgi",
        draft=zoo.medusa(3, 5120, 128256),
        code="draft-shape",
    ),
    Pair(
        id="medusa-vocabulary",
        kind="medusa:",
        family="tgi",
        draft=zoo.medusa(3, 4096, 32000),
        code="draft-shape",
    ),
    Pair(
        id="medusa-more-tokens-than-heads",
        kind="medusa:",
        family="tgi",
        draft=MEDUSA,
        asked={"speculative_tokens": 5},
        code="draft-heads",
    ),
    Pair(
        id="medusa-config-of-other-heads",
        kind="medusa:",
        family="tgi",
        draft=replace(MEDUSA, config={"medusa_num_heads": 5, "medusa_num_layers": 1}),
        code="draft-config",
    ),
    # Truncated.
    Pair(
        id="eagle3-truncated",
        kind="eagle3:",
        draft=heads.without(HEAD, "midlayer.mlp.down_proj.weight"),
        code="draft-truncated",
    ),
    Pair(
        id="eagle3-without-lm-head",
        kind="eagle3:",
        draft=heads.without(HEAD, "lm_head.weight"),
        code="draft-truncated",
    ),
    Pair(
        id="eagle-truncated",
        kind="eagle:",
        draft=heads.without(heads.eagle(LLAMA_3_8B), "fc.weight"),
        code="draft-truncated",
    ),
    Pair(
        id="medusa-truncated",
        kind="medusa:",
        family="tgi",
        draft=heads.without(MEDUSA, "2.1.weight"),
        code="draft-truncated",
    ),
    Pair(
        id="medusa-that-is-a-model",
        kind="medusa:",
        family="tgi",
        draft=small(),
        code="draft-heads",
    ),
    # Element types.
    Pair(
        id="eagle3-quantized",
        kind="eagle3:",
        draft=heads.with_shapes(HEAD, {"midlayer.mlp.up_proj.weight": ("I8", (14336, 4096))}),
        code="draft-dtype",
    ),
    Pair(
        id="medusa-quantized",
        kind="medusa:",
        family="tgi",
        draft=heads.with_shapes(MEDUSA, {"0.0.linear.weight": ("F8_E4M3", (4096, 4096))}),
        code="draft-dtype",
    ),
    Pair(
        id="draft-of-a-format-without-kernels",
        kind="",
        draft=replace(
            awq_model_of(TINY | {"vocab_size": 128256}),
            config=TINY | {"vocab_size": 128256, "quantization_config": {"quant_method": "fp8"}},
            tensors=model_of(SMALL, dtype="F8_E4M3").tensors,
        ),
        instance="p3dn.24xlarge",
        code="format-unsupported",
    ),
    # Tensor parallelism.
    Pair(
        id="draft-heads-over-8",
        kind="",
        draft=small(),
        instance="p4d.24xlarge",
        asked={"tp_degree": 8},
        code="draft-split",
    ),
    Pair(
        id="eagle3-heads-over-8",
        kind="eagle3:",
        draft=heads.eagle3(
            LLAMA_3_8B | {"num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 128}
        ),
        instance="p4d.24xlarge",
        asked={"tp_degree": 8},
        code="draft-split",
    ),
    # Kinds and engines' versions.
    Pair(id="eagle-is-eagle3", kind="eagle:", draft=HEAD, code="draft-kind"),
    Pair(id="eagle3-is-eagle", kind="eagle3:", draft=heads.eagle(LLAMA_3_8B), code="draft-kind"),
    Pair(
        id="medusa-after-vllm-0.32",
        kind="medusa:",
        draft=MEDUSA,
        family="vllm-0.33",
        code="medusa-gone-from-vllm",
    ),
    Pair(
        id="draft-model-in-lmi-16",
        kind="",
        draft=small(),
        family="lmi",
        asked={"container_version": "16"},
        code="draft-model-missing-in-vllm",
    ),
    Pair(
        id="eagle3-in-lmi-15",
        kind="eagle3:",
        draft=HEAD,
        family="lmi",
        asked={"container_version": "15"},
        code="eagle3-before-vllm",
    ),
    Pair(id="eagle3-in-tgi", kind="eagle3:", draft=HEAD, family="tgi", code="tgi-draft-kind"),
    Pair(
        id="medusa-in-sglang",
        kind="medusa:",
        draft=MEDUSA,
        family="sglang",
        code="sglang-no-medusa",
    ),
    Pair(
        id="draft-model-on-trainium",
        kind="",
        draft=small(),
        family="neuron",
        instance="trn2.48xlarge",
        code="neuron-eagle3-only",
    ),
    Pair(
        id="eagle3-on-inferentia",
        kind="eagle3:",
        draft=HEAD,
        family="neuron",
        instance="inf2.48xlarge",
        code="neuron-no-draft",
    ),
    # Architectures.
    Pair(
        id="head-of-another-architecture",
        kind="eagle3:",
        draft=heads.eagle3_of_speculators(LLAMA_3_8B | {"architectures": ["Qwen3ForCausalLM"]}),
        code="draft-architecture",
    ),
    Pair(
        id="eagle-of-qwen2",
        kind="eagle:",
        model=model_of(LLAMA_3_8B | {"architectures": ["Qwen2ForCausalLM"]}),
        draft=heads.eagle(LLAMA_3_8B),
        code="eagle-qwen2-not-served",
    ),
    Pair(
        id="eagle3-of-gemma-before-it-was-listed",
        kind="eagle3:",
        model=model_of(LLAMA_3_8B | {"architectures": ["MistralForCausalLM"]}),
        draft=HEAD,
        family="lmi",
        asked={"container_version": "23"},
        code="eagle3-model-not-listed",
    ),
    # Beside quantized models.
    Pair(
        id="medusa-2-beside-awq",
        kind="medusa:",
        family="tgi",
        model=AWQ,
        draft=zoo.medusa(3, 4096, 128256, version=2),
        code="tgi-medusa-v2-quantized",
    ),
    Pair(
        id="medusa-2-beside-gptq",
        kind="medusa:",
        family="tgi",
        model=replace(
            AWQ,
            config={**AWQ.config, "quantization_config": AWQ_G128 | {"quant_method": "gptq"}},
        ),
        draft=zoo.medusa(3, 4096, 128256, version=2),
        code="tgi-medusa-v2-quantized",
    ),
    Pair(
        id="medusa-2-in-vllm",
        kind="medusa:",
        draft=zoo.medusa(3, 4096, 128256, version=2),
        family="lmi",
        code="draft-unsupported",
    ),
    # Formats that cannot be written anew, because the files are mounted.
    Pair(
        id="speculators-mounted-in-sglang",
        kind="eagle3:",
        draft=SPECULATORS,
        family="sglang",
        asked={"weights": "mounted"},
        code="draft-layout",
    ),
    Pair(
        id="medusa-mounted-under-another-name",
        kind="medusa:",
        draft=replace(
            MEDUSA,
            files=(ModelFile(path="heads.safetensors", role="weights", content=Inline(b"")),),
        ),
        family="tgi",
        asked={"weights": "mounted"},
        code="draft-layout",
    ),
    Pair(
        id="norm-that-sglang-leaves-out",
        kind="eagle3:",
        draft=heads.files(
            SPECULATORS.config,
            {one.name: (one.dtype, one.shape) for one in SPECULATORS.tensors}
            | {"input_norm.weight": ("BF16", (3 * 4096,))},
        ),
        family="sglang",
        code="draft-layout",
    ),
    # P-EAGLE.
    Pair(id="peagle-as-eagle3", kind="eagle3:", draft=PEAGLE, code="draft-kind"),
    Pair(id="speculators-peagle-as-eagle3", kind="eagle3:", draft=PARALLEL, code="draft-kind"),
    Pair(id="eagle3-as-peagle", kind="peagle:", draft=HEAD, code="draft-kind"),
    Pair(id="dflash-as-peagle", kind="peagle:", draft=DFLASH, code="draft-kind"),
    Pair(
        id="peagle-without-mask",
        kind="peagle:",
        draft=heads.without(PARALLEL, "mask_hidden"),
        code="draft-truncated",
    ),
    Pair(
        id="peagle-mask-of-another-model",
        kind="peagle:",
        draft=heads.with_shapes(PEAGLE, {"mask_hidden": ("BF16", (1, 1, 3 * 5120))}),
        code="draft-shape",
    ),
    Pair(
        id="peagle-without-mask-token",
        kind="peagle:",
        draft=heads.files(
            {key: value for key, value in PARALLEL.config.items() if key != "mask_token_id"},
            {one.name: (one.dtype, one.shape) for one in PARALLEL.tensors},
        ),
        code="draft-config",
    ),
    Pair(
        id="peagle-mask-token-beyond-the-vocabulary",
        kind="peagle:",
        draft=heads.peagle(LLAMA_3_8B, mask_token_id=10**9),
        code="draft-config",
    ),
    Pair(
        id="peagle-other-hidden-size",
        kind="peagle:",
        draft=heads.peagle(LLAMA_3_8B | {"hidden_size": 5120}),
        code="draft-shape",
    ),
    Pair(
        id="peagle-last-layer-missing",
        kind="peagle:",
        draft=heads.without(PEAGLE, "layers.3.mlp.down_proj.weight"),
        code="draft-truncated",
    ),
    Pair(
        id="peagle-short-map",
        kind="peagle:",
        draft=heads.with_shapes(PARALLEL, {"d2t": ("I64", (31999,))}),
        code="draft-mapping",
    ),
    Pair(
        id="peagle-of-speculators-before-vllm-0.22",
        kind="peagle:",
        draft=PARALLEL,
        asked={"container_version": "0.21.0"},
        code="draft-layout",
    ),
    Pair(
        id="peagle-before-vllm-0.16",
        kind="peagle:",
        draft=PEAGLE,
        asked={"container_version": "0.15.1"},
        code="draft-unsupported",
    ),
    Pair(
        id="peagle-in-sglang",
        kind="peagle:",
        draft=PEAGLE,
        family="sglang",
        code="draft-unsupported",
    ),
    # DFlash.
    Pair(id="eagle3-as-dflash", kind="dflash:", draft=HEAD, code="draft-kind"),
    Pair(id="dflash-as-eagle3", kind="eagle3:", draft=BLOCKS, code="draft-kind"),
    Pair(
        id="dflash-other-vocabulary",
        kind="dflash:",
        draft=heads.dflash(QWEN3),
        code="draft-vocabulary",
    ),
    Pair(
        id="dflash-other-hidden-size-without-embeddings",
        kind="dflash:",
        draft=heads.dflash(LLAMA_3_8B | {"hidden_size": 2048}),
        code="draft-truncated",
    ),
    Pair(
        id="dflash-other-architecture",
        kind="dflash:",
        draft=heads.dflash_of_speculators(QWEN3 | {"vocab_size": 128256}),
        code="draft-architecture",
    ),
    Pair(
        id="dflash-without-fc",
        kind="dflash:",
        draft=heads.without(DFLASH, "fc.weight"),
        code="draft-truncated",
    ),
    Pair(
        id="dflash-last-layer-missing",
        kind="dflash:",
        draft=heads.without(BLOCKS, "layers.4.self_attn.k_norm.weight"),
        code="draft-truncated",
    ),
    Pair(
        id="dflash-fewer-layers-read-than-fc-has",
        kind="dflash:",
        draft=heads.dflash(LLAMA_3_8B, dflash_config=OWN | {"target_layer_ids": [1, 9]}),
        code="draft-shape",
    ),
    Pair(
        id="dflash-layer-that-the-model-lacks",
        kind="dflash:",
        draft=heads.dflash(
            LLAMA_3_8B, dflash_config=OWN | {"target_layer_ids": [1, 9, 17, 25, 61]}
        ),
        code="draft-aux-layers",
    ),
    Pair(
        id="dflash-layers-unsaid",
        kind="dflash:",
        draft=heads.dflash(LLAMA_3_8B, dflash_config={"mask_token_id": 7}),
        code="draft-aux-layers",
    ),
    Pair(
        id="dflash-mask-token-unsaid",
        kind="dflash:",
        draft=heads.dflash(LLAMA_3_8B, dflash_config={"target_layer_ids": [1, 9, 17, 25, 29]}),
        code="draft-config",
    ),
    Pair(
        id="dflash-mask-token-is-text",
        kind="dflash:",
        draft=heads.dflash(LLAMA_3_8B, dflash_config=OWN | {"mask_token_id": "7"}),
        code="draft-config",
    ),
    Pair(
        id="dflash-mask-embedding-in-a-pickle",
        kind="dflash:",
        draft=replace(DFLASH, left_out={"mask_embedding.pt": "a pickle"}),
        code="draft-truncated",
    ),
    Pair(
        id="dflash-block-unsaid",
        kind="dflash:",
        draft=heads.dflash(LLAMA_3_8B, block_size=None),
        code="draft-config",
    ),
    Pair(
        id="dflash-more-tokens-than-the-block",
        kind="dflash:",
        draft=BLOCKS,
        asked={"speculative_tokens": 8},
        code="draft-block",
    ),
    Pair(
        id="dflash-short-map",
        kind="dflash:",
        draft=heads.with_shapes(BLOCKS, {"d2t": ("I64", (31999,))}),
        code="draft-mapping",
    ),
    Pair(
        id="dflash-without-scores-of-its-own-vocabulary",
        kind="dflash:",
        draft=heads.without(BLOCKS, "lm_head.weight"),
        code="draft-truncated",
    ),
    Pair(
        id="dflash-before-vllm-0.20",
        kind="dflash:",
        draft=DFLASH,
        asked={"container_version": "0.19.1"},
        code="draft-unsupported",
    ),
    Pair(
        id="dflash-in-lmi-24",
        kind="dflash:",
        draft=DFLASH,
        family="lmi",
        asked={"container_version": "24"},
        code="draft-unsupported",
    ),
    Pair(
        id="dflash-before-sglang-0.5.11",
        kind="dflash:",
        draft=DFLASH,
        family="sglang",
        asked={"container_version": "0.5.10"},
        code="draft-unsupported",
    ),
    Pair(
        id="dflash-of-speculators-in-sglang",
        kind="dflash:",
        draft=BLOCKS,
        family="sglang",
        code="draft-layout",
    ),
    Pair(id="dflash-in-tgi", kind="dflash:", draft=DFLASH, family="tgi", code="tgi-draft-kind"),
    Pair(
        id="dflash-on-trainium",
        kind="dflash:",
        draft=DFLASH,
        family="neuron",
        instance="trn2.48xlarge",
        code="neuron-eagle3-only",
    ),
    # Heads of Gemma 4, which are checkpoints of their own.
    Pair(id="assistant-of-another-family", kind="mtp:", draft=ASSISTANT, code="draft-architecture"),
    Pair(id="eagle3-as-assistant", kind="mtp:", draft=HEAD, model=GEMMA, code="draft-kind"),
    Pair(
        id="assistant-of-a-larger-model",
        kind="mtp:",
        draft=heads.assistant(GEMMA_4 | {"hidden_size": 5376}),
        model=GEMMA,
        code="draft-shape",
    ),
    Pair(
        id="assistant-of-other-words",
        kind="mtp:",
        draft=heads.assistant(GEMMA_4 | {"vocab_size": 262208}),
        model=GEMMA,
        code="draft-vocabulary",
    ),
    Pair(
        id="assistant-without-its-way-back",
        kind="mtp:",
        draft=heads.without(ASSISTANT, "post_projection.weight"),
        model=GEMMA,
        code="draft-truncated",
    ),
    Pair(
        id="assistant-with-a-layer-missing",
        kind="mtp:",
        draft=heads.without(ASSISTANT, "model.layers.3.self_attn.q_proj.weight"),
        model=GEMMA,
        code="draft-truncated",
    ),
    Pair(
        id="assistant-of-hostile-sizes",
        kind="mtp:",
        draft=heads.assistant(GEMMA_4, backbone_hidden_size="2560"),
        model=GEMMA,
        code="draft-config",
    ),
    Pair(
        id="assistant-before-vllm-0.21",
        kind="mtp:",
        draft=ASSISTANT,
        model=GEMMA,
        asked={"container_version": "0.20.1"},
        code="draft-mtp-engine",
    ),
    Pair(
        id="assistant-before-sglang-0.5.17",
        kind="mtp:",
        draft=ASSISTANT,
        model=GEMMA,
        family="sglang",
        asked={"container_version": "0.5.16"},
        code="draft-mtp-engine",
    ),
    Pair(
        id="residual-after-the-norm-in-sglang",
        kind="eagle3:",
        draft=heads.eagle3(LLAMA_3_8B, norm_before_residual=True),
        family="sglang",
        code="draft-layout",
    ),
)


def plan_of(pair: Pair) -> Plan:
    family = pair.family.partition("-")[0]
    facts = facts_of(
        pair.model, pair.instance, family=family, draft=f"{pair.kind}org/draft", **pair.asked
    )
    container = find_container(
        family,
        facts.instance.kind,
        pair.asked.get("container_version"),
        None,
        facts.instance.name,
        (),
    )
    if pair.family == "vllm-0.33":
        container = replace(container, engine_version="0.33.0")
    facts = replace(facts, container=container, draft=pair.draft)
    return make_plan(facts, FAMILIES[family], rules=rules())


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.id)
def test_a_draft_that_does_not_fit_is_refused_from_headers(pair: Pair) -> None:
    rules()  # read once, as in a run
    started = time.process_time()
    with pytest.raises(PlanRejected) as caught:
        plan_of(pair)
    seconds = time.process_time() - started

    refusals = {finding.code: finding for finding in errors_in(caught.value.findings)}
    assert pair.code in refusals, refusals
    assert refusals[pair.code].hint
    assert seconds < 10  # and never the minutes that reading weights takes


def test_there_are_pairs_of_every_sort_the_field_gets_wrong() -> None:
    assert len(PAIRS) >= 25
    assert len({pair.id for pair in PAIRS}) == len(PAIRS)


def fitting() -> Iterator[Pair]:
    yield Pair(id="model", kind="", draft=small(), code="")
    yield Pair(id="eagle", kind="eagle:", draft=heads.eagle(LLAMA_3_8B), code="")
    yield Pair(id="eagle3", kind="eagle3:", draft=HEAD, code="")
    yield Pair(id="eagle3-speculators", kind="eagle3:", draft=SPECULATORS, code="")
    yield Pair(id="eagle3-sglang", kind="eagle3:", draft=SPECULATORS, family="sglang", code="")
    yield Pair(
        id="eagle3-whole-vocabulary",
        kind="eagle3:",
        draft=heads.eagle3(LLAMA_3_8B, draft_vocab=128256),
        code="",
    )
    yield Pair(id="medusa-tgi", kind="medusa:", draft=MEDUSA, family="tgi", code="")
    yield Pair(id="medusa-awq", kind="medusa:", draft=MEDUSA, model=AWQ, family="tgi", code="")
    yield Pair(
        id="medusa-lmi",
        kind="medusa:",
        draft=heads.medusa_of_vllm(4096, 128256),
        family="lmi",
        code="",
    )
    yield Pair(id="assistant", kind="mtp:", draft=ASSISTANT, model=GEMMA, code="")
    yield Pair(
        id="assistant-sglang", kind="mtp:", draft=ASSISTANT, model=GEMMA, family="sglang", code=""
    )
    yield Pair(id="peagle", kind="peagle:", draft=PEAGLE, code="")
    yield Pair(id="peagle-speculators", kind="peagle:", draft=PARALLEL, code="")
    yield Pair(
        id="peagle-vllm-0.16",
        kind="peagle:",
        draft=PEAGLE,
        asked={"container_version": "0.16.0"},
        code="",
    )
    yield Pair(id="dflash", kind="dflash:", draft=DFLASH, code="")
    yield Pair(id="dflash-speculators", kind="dflash:", draft=BLOCKS, code="")
    yield Pair(
        id="dflash-vllm-0.20.0",
        kind="dflash:",
        draft=BLOCKS,
        asked={"container_version": "0.20.0"},
        code="",
    )
    yield Pair(id="dflash-lmi", kind="dflash:", draft=BLOCKS, family="lmi", code="")
    yield Pair(id="dflash-sglang", kind="dflash:", draft=DFLASH, family="sglang", code="")
    yield Pair(
        id="eagle3-trainium",
        kind="eagle3:",
        draft=SPECULATORS,
        family="neuron",
        instance="trn2.48xlarge",
        asked={"tp_degree": 8},
        code="",
    )


@pytest.mark.parametrize("pair", tuple(fitting()), ids=lambda pair: pair.id)
def test_what_fits_is_planned_with_its_numbers(pair: Pair) -> None:
    plan = plan_of(pair)

    assert plan.draft is not None
    assert plan.draft.weight_bytes > 0
    assert plan.budget.draft_weights_bytes > 0
    assert (plan.budget.draft_kv_bytes > 0) == (plan.draft.kind not in ("medusa", "mtp"))
    assert plan.draft.ref == pair.draft.ref
    assert plan.draft.layout


def warned(pair: Pair) -> list[Finding]:
    return [finding for finding in plan_of(pair).findings if finding.severity == "warning"]


def test_eagle_2_of_qwen3_next_is_not_asked_about_and_eagle_3_is() -> None:
    pair = Pair(id="", kind="eagle3:", draft=HEAD, code="")
    other = model_of(LLAMA_3_8B | {"architectures": ["Starcoder2ForCausalLM"]})

    assert "eagle-not-dispatched" not in [finding.code for finding in warned(pair)]
    assert "eagle-not-dispatched" in [
        finding.code for finding in warned(replace(pair, model=other))
    ]


def test_tokenizers_of_other_bytes_are_asked_about_where_digests_are_known() -> None:
    def with_digest(model: ModelFiles, digest: str) -> ModelFiles:
        file = ModelFile(
            path="tokenizer.json", role="tokenizer", content=Inline(b"{}"), sha256=digest
        )
        return replace(model, files=(file,))

    pair = Pair(
        id="", kind="", model=with_digest(LLAMA, "a"), draft=with_digest(small(), "a"), code=""
    )

    assert "draft-tokenizer" not in [finding.code for finding in warned(pair)]
    assert "draft-tokenizer" in [
        finding.code for finding in warned(replace(pair, draft=with_digest(small(), "b")))
    ]


def test_a_head_for_a_model_of_another_name_is_asked_about() -> None:
    model = model_of(LLAMA_3_8B, name="meta-llama/Llama-3.1-8B-Instruct")
    named = {"base_model_name_or_path": "meta-llama/Llama-3.1-8B"}
    other = {"base_model_name_or_path": "mistralai/Mistral-7B"}

    for config, expected in ((named, False), (other, True)):
        draft = replace(MEDUSA, config={**MEDUSA.config, **config})
        pair = Pair(id="", kind="medusa:", model=model, draft=draft, family="tgi", code="")
        assert ("draft-other-model" in [one.code for one in warned(pair)]) == expected
