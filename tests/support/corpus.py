"""The corpus of requests: what engines were asked for, and what each engine's version said.

A row of `data/corpus/FAMILY.jsonl` asks for options on top of a plan written out here.  Its
`verdicts` were recorded by `scripts/engine-verdicts`, which gives the configuration that packager
renders to the engine's own parser and checks: see docs/adding-a-family.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from packager.core.facts import ContainerFacts
from packager.core.instance import Instance, gpu_formats
from packager.core.model import ModelProfile
from packager.core.plan import Plan
from packager.core.units import GIB
from packager.findings import Finding
from tests.golden.cases import family_of
from tests.support.engine_plans import CONTAINERS as WRITTEN_OUT
from tests.support.engine_plans import (
    DRAFT_MODEL,
    EAGLE3,
    FP8_AT_LOAD,
    LLAMA_8B,
    MEDUSA_V1,
    MIXTRAL,
    plan_for,
)
from tests.support.engine_plans import NGRAM as NGRAM_DRAFT
from tests.support.places import DATA

CORPUS = DATA / "engines" / "corpus"
FAMILIES = ("vllm", "sglang", "lmi", "tgi", "neuron")

# What is said of a version: `accepted`; `refused`, in the engine's words; `dropped`, when the
# engine starts and what was asked for has no effect; `undecided`, when no consumer here can tell.
VERDICTS = ("accepted", "refused", "dropped", "undecided")

# What packager refuses for its own reasons, whatever the engine says of it.
POLICIES = frozenset(("remote-code", "credential-in-image"))

# Models as the engines get them: config.json of the real size, without weights.
CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "llama": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "vocab_size": 128256,
        "bos_token_id": 128000,
        "eos_token_id": 128009,
        "hidden_act": "silu",
        "torch_dtype": "bfloat16",
    },
    "mixtral": {
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1000000.0,
        "sliding_window": None,
        "vocab_size": 32000,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "torch_dtype": "bfloat16",
    },
    "mla": {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "moe_intermediate_size": 2048,
        "num_hidden_layers": 61,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "n_group": 8,
        "topk_group": 4,
        "topk_method": "noaux_tc",
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "scoring_func": "sigmoid",
        "first_k_dense_replace": 3,
        "moe_layer_freq": 1,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "num_nextn_predict_layers": 1,
        "max_position_embeddings": 163840,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000,
        "rope_scaling": {
            "type": "yarn",
            "factor": 40,
            "original_max_position_embeddings": 4096,
            "beta_fast": 32,
            "beta_slow": 1,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
        "vocab_size": 129280,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    },
}
MLA = ModelProfile(
    architecture="DeepseekV3ForCausalLM",
    parameters=671_026_419_200,
    weight_bytes=1_342_052_838_400,
    dtype="bf16",
    hidden_size=7168,
    intermediate_size=18432,
    layers=61,
    heads=128,
    kv_heads=128,
    head_dim=192,
    vocab_size=129280,
    max_positions=163840,
    kv_bytes_per_token=70272,
    attention="mla",
    experts=256,
    experts_per_token=8,
    expert_size=2048,
    model_type="deepseek_v3",
)
PROFILES = {
    "llama": replace(LLAMA_8B, model_type="llama"),
    "mixtral": replace(
        MIXTRAL, model_type="mixtral", experts=8, experts_per_token=2, expert_size=14336
    ),
    "mla": MLA,
}
DRAFTS = {"ngram": NGRAM_DRAFT, "draft_model": DRAFT_MODEL, "eagle3": EAGLE3, "medusa": MEDUSA_V1}
GPUS = Instance(
    name="ml.p5.48xlarge",
    kind="nvidia",
    device_name="H100",
    devices=8,
    device_bytes=80 * GIB,
    host_bytes=2048 * GIB,
    vcpus=192,
    compute_capability=9.0,
    formats=gpu_formats(9.0),
)

# The LMI releases, and the vLLM inside (containers/serving/images.toml).
LMI_ENGINES = {
    "13": "0.6.3.post1",
    "14": "0.7.3",
    "15": "0.8.4",
    "16": "0.10.2",
    "17": "0.11.1",
    "20": "0.15.1",
    "26": "0.22.1",
    "27": "0.23.1",
    "28": "0.26.0",
}
NEURON = {
    "hf-vllm-neuronx": "neuron-hf",
    "lmi-neuronx": "neuron-lmi",
    "tgi-neuronx": "neuron-tgi",
    "vllm-neuron": "neuron-vllm",
    "vllm-nxdi": "neuron-nxdi",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, for one model. `verdicts` gives each version's, with the engine's words."""

    family: str
    name: str
    source: str  # where people ask so: `vLLM docs, tool calling`, `adversarial`
    options: Mapping[str, str]
    model: str = "llama"
    plan: Mapping[str, Any] = field(default_factory=dict)  # what the plan decides otherwise
    verdicts: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def read_corpus(family: str) -> Iterator[Request]:
    """Read the requests of a family, in the order of its file."""
    for line in (CORPUS / f"{family}.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        yield Request(
            family=family,
            name=row["id"],
            source=row["from"],
            options=row["options"],
            model=row.get("model", "llama"),
            plan=row.get("plan", {}),
            verdicts={
                version: (verdict, words)
                for verdict, versions in row["verdicts"].items()
                for version, words in versions.items()
            },
        )


def plan_of(request: Request, version: str) -> Plan:
    """Write out the plan of a request for a version of the engine or of the container."""
    return replace(
        _base_plan(
            request.family, version, request.model, json.dumps(request.plan, sort_keys=True)
        ),
        engine_options=tuple(request.options.items()),
    )


def judge(request: Request, version: str) -> tuple[str, tuple[Finding, ...]]:
    """Return packager's verdict, and its findings beyond those of the plan without options.

    `policy` is a refusal for packager's own reasons; `warned` an acceptance with a warning.
    """
    plan = plan_of(request, version)
    without = _findings(
        request.family, version, request.model, json.dumps(request.plan, sort_keys=True)
    )
    found = tuple(family_of(request.family).check(plan))
    errors = [one for one in found if one.severity == "error"]
    if errors:
        is_policy = all(one.code in POLICIES for one in errors)
        return ("policy" if is_policy else "refused"), tuple(errors)
    warned = tuple(one for one in found if one.severity == "warning" and one not in without)
    return ("warned" if warned else "accepted"), warned


def container_of(family: str, version: str) -> ContainerFacts:
    """Describe the container that a version of the corpus means.

    `0.27.1` of vLLM and SGLang is upstream's image, which gets a command line;
    `0.27.1-sagemaker` is AWS's, which gets variables.  LMI's versions are its releases.
    """
    if family == "neuron":
        return WRITTEN_OUT[NEURON[version]]
    written = WRITTEN_OUT[family]
    if family == "lmi":
        engine = LMI_ENGINES[version]
        number = f"0.36.0-lmi{version}.0.0"
        return replace(written, engine_version=engine, version=number, release=version)
    engine, _, image = version.partition("-")
    is_upstream = image == "upstream" if family == "tgi" else image != "sagemaker"
    variant = "upstream" if is_upstream else ""
    return replace(written, engine_version=engine, version=version, variant=variant)


@cache
def _base_plan(family: str, version: str, model: str, changes: str) -> Plan:
    given = json.loads(changes)
    if "draft" in given:
        given["draft"] = DRAFTS[given["draft"]]
    if "quantization" in given:
        given["quantization"] = replace(FP8_AT_LOAD, method=given["quantization"])
    container = container_of(family, version)
    on_neuron = container.kind == "neuron"
    plan = plan_for(
        "neuron-hf" if on_neuron else "vllm-upstream",
        profile=PROFILES[model],
        tp_degree=8 if on_neuron else 2,
        **given,
    )
    return replace(plan, container=container, instance=plan.instance if on_neuron else GPUS)


@cache
def _findings(family: str, version: str, model: str, changes: str) -> frozenset[Finding]:
    plan = _base_plan(family, version, model, changes)
    return frozenset(family_of(family).check(plan))
