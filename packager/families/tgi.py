"""The TGI family: Hugging Face's Text Generation Inference.

The launcher reads everything from environment variables, and so do the router and the shards that
it starts.  In the image for SageMaker a script starts it: the script has names of its own for a
few variables (`HF_MODEL_ID`, `SM_NUM_GPUS`), which overwrite the launcher's; upstream's image has
the launcher's names alone.  What each version reads is in `data/engines/tgi-*.json`.  The longest
prompt is `MAX_INPUT_LENGTH`, which every version knows; newer ones call it MAX_INPUT_TOKENS, and
refuse both together.

Medusa heads are a model directory of their own, whose config.json names the
model they belong to.  Mounted, the heads are the mount's root and the model
lies under `llm/`.  Baked, each keeps the directory it always has, so that the
model's layers are the same with and without heads.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Collection, Iterator, Mapping

from packager.core.artifact import Artifacts
from packager.core.facts import ContainerFacts
from packager.core.findings import Finding
from packager.core.plan import GPU_MEMORY_UTILIZATION, Plan
from packager.core.serving import RenderedFile, ServingConfig
from packager.core.split import Abilities, QuantizedDtypes
from packager.core.stopping import Stopping
from packager.core.versions import version_key
from packager.families.arrived import check_arrived
from packager.families.listed import check_listed
from packager.families.rules import NO_FACTS, Facts, check_rules, plan_facts
from packager.families.sagemaker import check_environment
from packager.families.schema import EngineSchema, check_value, find_schema, nearest
from packager.families.shared import (
    check_engine_options,
    check_layout_options,
    check_one_stage,
    check_unnamed,
    checkpoint_format,
    draft_unsupported,
    load_time_quantization,
    medusa_config,
    medusa_dirs,
    model_dir,
)
from packager.families.vllm_options import check_version
from packager.rendering.check import check_json
from packager.rendering.environment import render_template

PORT = 8080
STOPPING = Stopping(
    drain_s=90,  # the launcher's default
    option="GRACEFUL_TERMINATION_TIMEOUT",
    source="text-generation-inference at db931fcf: launcher/src/main.rs",
)
DTYPES = {"bf16": "bfloat16", "fp16": "float16"}
KV_DTYPES = {"fp8": "fp8_e4m3fn"}
DEFAULT_CONCURRENT = 128  # of the launcher
DEFAULT_PREFILL = 4096  # of the launcher, or more
CHUNKS_SINCE = 3  # the first major version that computes long prompts in pieces
CHUNKS_FROM_CAPABILITY = 8.0  # older GPUs get paged attention
# Attention that keeps an FP8 cache on NVIDIA's GPUs (server/layers/attention/kv_cache.py), and when
# the launcher takes another unasked (resolve_attention): text-generation-inference at db931fcf.
FP8_CACHE_ATTENTION = {"flashinfer", "paged"}
FLASHINFER_HEAD_DIMS = {64, 128, 256}
NEVER_FLASHINFER = {"falcon", "deepseek_v2"}  # as config.json's `model_type`
# Built with `support_chunking=False` (server/models/__init__.py at db931fcf), the same names.
NEVER_CHUNKED = {"gemma3", "qwen2_vl", "qwen2_5_vl", "mllama"}
CHUNKING_ATTENTION = {"flashinfer", "flashdecoding"}
TRUE = {"1", "true"}  # as the shards read a variable that says yes
UNSPLITTABLE_HEADS = {"awq", "gptq"}  # formats whose loader wants quantized Medusa v2 heads

# checkpoint's format → what QUANTIZE calls it
QUANTIZE = {
    "awq": "awq",
    "gptq": "gptq",
    "compressed-tensors": "compressed-tensors",
    "fp8": "fp8",
    "fbgemm_fp8": "fp8",
    "exl2": "exl2",
    "marlin": "marlin",
    "bitsandbytes": "bitsandbytes",
    "eetq": "eetq",
}
# Beside QUANTIZE the shards refuse DTYPE, but for bitsandbytes (server/cli.py), and `get_model` of
# server/models/__init__.py decides: float16 for four formats, else the default of each class.
QUANTIZED_DTYPES = QuantizedDtypes(
    half=frozenset({"awq", "gptq", "exl2", "marlin"}),
    asked=frozenset({"bitsandbytes", "bitsandbytes-nf4", "bitsandbytes-fp4"}),
    wide=frozenset(
        {
            *("deepseek_v2", "deepseek_v3", "gemma", "gemma2", "gemma3", "gemma3_text", "dbrx"),
            *("qwen2_vl", "qwen2_5_vl", "mllama", "llama4", "idefics3", "paligemma"),
        }
    ),
)
SAGEMAKER_NAMES = {"MODEL_ID": "HF_MODEL_ID", "NUM_SHARD": "SM_NUM_GPUS"}
LAYOUT = {
    "CUDA_VISIBLE_DEVICES": "use --tp-degree, or another instance",
    "NVIDIA_VISIBLE_DEVICES": "use --tp-degree, or another instance",
}


class TgiFamily:
    """Describes images whose server is TGI, on GPUs."""

    name = "tgi"

    def abilities(self, container: ContainerFacts) -> Abilities:
        """Return what TGI's launcher can start: one copy, with every head on one shard alone."""
        return Abilities(
            who=f"TGI {container.engine_version}".strip(),
            copies_kv_heads=False,
            stopping=STOPPING,
            quantized_dtypes=QUANTIZED_DTYPES,
        )

    def check(self, plan: Plan) -> Iterator[Finding]:
        """Say what launcher, router and shards would refuse, and what they leave unenforced."""
        yield from check_one_stage(plan, "TGI")
        yield from _check_format(plan)
        yield from check_listed("TGI", plan)
        yield from _check_draft(plan)
        spelled = {name: env_name(name) for name, _ in plan.engine_options}
        yield from check_engine_options(plan, _planned(plan), spelled)
        yield from check_layout_options(spelled, LAYOUT)
        env, facts = settings(plan), plan_facts(plan)
        version = plan.container.engine_version
        yield from check_version("TGI", version, schema_of(plan))
        yield from check_settings(
            env, version, facts, by_script=_by_script(plan), drafts=plan.draft is not None
        )
        yield from check_cache(env, facts, medusa=_has_medusa(plan))
        yield from _check_shards(plan)
        yield from check_environment(plan, env)
        message = (
            f"TGI fills its batches by the tokens that fit in memory; "
            f"max_batch {plan.shape.max_batch} is planned with, not enforced"
        )
        yield Finding("note", "batch-not-enforced", message, "set MAX_BATCH_SIZE to enforce it")
        yield from check_unnamed(plan, "TGI")

    def render(self, plan: Plan, artifacts: Artifacts) -> ServingConfig:  # noqa: ARG002
        """Give the environment and, for Medusa, the config.json that joins heads and model."""
        env = settings(plan)
        if plan.weights == "baked":
            env = {"HF_HUB_OFFLINE": "1", "USAGE_STATS": "off", **env}
        if not _has_medusa(plan):
            return ServingConfig(env=env, port=PORT, model_dir=model_dir(plan))
        heads, model = medusa_dirs(plan)
        return ServingConfig(
            files=(_medusa_config(plan, heads),),
            env=env,
            port=PORT,
            model_dir=model,
            draft_dir=heads,
        )


def settings(plan: Plan) -> dict[str, str]:
    """Spell the plan, and the options asked for by name, in the launcher's variables."""
    return {**_planned(plan), **_asked(plan)}


def env_name(option: str) -> str:
    """Spell an option as the launcher's variable: `max-batch-size` is MAX_BATCH_SIZE."""
    return option.replace("-", "_").upper()


def schema_of(plan: Plan) -> EngineSchema:
    """Return what the plan's version of TGI reads."""
    return find_schema("tgi", plan.container.engine_version)


def check_settings(
    env: Mapping[str, str],
    version: str,
    facts: Facts = NO_FACTS,
    *,
    by_script: bool,
    drafts: bool = False,
) -> Iterator[Finding]:
    """Find what this version of TGI refuses, drops or changes of an environment.

    `by_script` says that SageMaker's script starts the launcher; it has names of its own.
    `drafts`: something proposes tokens that no variable tells of, such as Medusa heads.
    """
    schema = find_schema("tgi", version)
    yield from check_names(env, schema, by_script=by_script)
    spelled = _exported(env, schema) if by_script else {}
    read = {**env, **{ours: env[theirs] for ours, theirs in spelled.items()}}
    chunks = not drafts and runs_chunks(version, read, facts)
    yield from check_launcher(read, chunks=chunks)
    known = schema.options
    yield from check_rules("TGI", "tgi", version, read, facts=facts, options=known, spelled=spelled)


def check_names(
    env: Mapping[str, str], schema: EngineSchema, *, by_script: bool = False
) -> Iterator[Finding]:
    """Find variables that nothing in TGI reads, and values that it does not take."""
    exported = {theirs: ours for ours, theirs in schema.exports.items()}
    known = (*schema.options, *(exported if by_script else ()))
    for name, value in env.items():
        option = schema.options.get(exported.get(name, name))
        if name not in known or option is None:
            yield _unread(name, known, schema, is_of_script=name in exported)
        else:
            yield from check_value("TGI", option, name, value)
    if by_script:
        yield from _check_script(env, schema)


def _unread(
    name: str, known: Collection[str], schema: EngineSchema, *, is_of_script: bool
) -> Finding:
    if is_of_script:
        message = f"{name!r} is read by the script of SageMaker's image alone"
        ours = next(ours for ours, theirs in schema.exports.items() if theirs == name)
        return Finding("error", "key-dropped", message, f"use {ours!r}")
    close = nearest(name, known)
    message = f"neither launcher, router nor shards of TGI {schema.version} read {name!r}"
    return Finding("error", "key-dropped", message, f"did you mean {close!r}?" if close else "")


def _check_script(env: Mapping[str, str], schema: EngineSchema) -> Iterator[Finding]:
    """Find variables that SageMaker's script overwrites before the launcher reads them."""
    for ours, theirs in _exported(env, schema).items():
        if env.get(ours, env[theirs]) != env[theirs]:
            message = f"{ours!r} is overwritten by SageMaker's script, with {theirs!r}"
            yield Finding("error", "key-dropped", message, f"set {theirs!r} alone")
    for name, given in schema.arguments.items():
        if env.get(name, given) != given:
            message = f"{name!r} is not read: SageMaker's script starts TGI with {given!r} for it"
            yield Finding("error", "key-dropped", message, f"leave it out, or use {given!r}")


def _exported(env: Mapping[str, str], schema: EngineSchema) -> dict[str, str]:
    """Map the launcher's variables to those that SageMaker's script sets them from."""
    return {ours: theirs for ours, theirs in schema.exports.items() if env.get(theirs)}


def check_launcher(env: Mapping[str, str], *, chunks: bool) -> Iterator[Finding]:
    """Check what launcher, router and shards check before a model is loaded.

    `launcher/src/main.rs`, `backends/v3/src/main.rs` and `server/cli.py` at db931fcf.
    """
    if {"MAX_INPUT_TOKENS", "MAX_INPUT_LENGTH"} <= env.keys():
        yield _conflict("MAX_INPUT_TOKENS and MAX_INPUT_LENGTH are both set")
    numbers = {name: int(value) for name, value in env.items() if _is_number(value)}
    prompt = numbers.get("MAX_INPUT_TOKENS", numbers.get("MAX_INPUT_LENGTH"))
    total, batch = numbers.get("MAX_TOTAL_TOKENS"), numbers.get("MAX_BATCH_TOTAL_TOKENS")
    prefill, shards = numbers.get("MAX_BATCH_PREFILL_TOKENS"), numbers.get("NUM_SHARD", 1)
    if prompt and total and prompt >= total:
        yield _conflict(f"the prompt's limit {prompt} is not below MAX_TOTAL_TOKENS {total}")
    if total and batch and total > batch:
        yield _conflict(f"MAX_TOTAL_TOKENS {total} is above MAX_BATCH_TOTAL_TOKENS {batch}")
    if prefill and batch and prefill > batch:
        yield _conflict(f"MAX_BATCH_PREFILL_TOKENS {prefill} is above a batch's {batch} tokens")
    if prompt and prefill and prompt > prefill and not chunks:
        yield _conflict(f"the prompt's limit {prompt} is above a prefill's {prefill} tokens")
    if prompt and prefill is None and prompt > DEFAULT_PREFILL and not chunks:
        message = (
            f"TGI may not start: it computes a prompt of {prompt} tokens at once, and its own "
            f"limit for that is {DEFAULT_PREFILL} or what it estimates of the GPU"
        )
        hint = f"set MAX_BATCH_PREFILL_TOKENS to {prompt} or more"
        yield Finding("warning", "options-conflict", message, hint)
    for name in ("MAX_BATCH_SIZE", "VALIDATION_WORKERS", "NUM_SHARD"):
        if numbers.get(name, 1) < 1:
            yield Finding("error", "value-refused", f"TGI refuses {numbers[name]} for {name}")
    quantize = env.get("QUANTIZE", "")
    if quantize == "exl2" and shards > 1:
        yield _conflict(f"exl2 weights cannot be split, and there are {shards} shards")
    if quantize and not quantize.startswith("bitsandbytes") and "DTYPE" in env:
        yield _conflict(f"DTYPE and QUANTIZE={quantize} are both set; only one can be")
    adapters = env.get("LORA_ADAPTERS", "").split(",")
    if any(adapter.count(mark) > 1 for adapter in adapters for mark in "@="):
        yield Finding("error", "value-refused", "TGI takes one '@' and '=' in each LORA_ADAPTERS")
    if not _is_address(env.get("HOSTNAME", "0.0.0.0")):
        message = f"TGI listens on 0.0.0.0: HOSTNAME {env['HOSTNAME'][:60]!r} is no address"
        yield Finding("warning", "key-dropped", message, "leave it out, or give an IP address")
    if env.get("NGROK") == "true" and not {"NGROK_AUTHTOKEN", "NGROK_EDGE"} <= env.keys():
        yield _conflict("NGROK needs NGROK_AUTHTOKEN and NGROK_EDGE")


def _planned(plan: Plan) -> dict[str, str]:
    names = SAGEMAKER_NAMES if _by_script(plan) else {}
    shape = plan.shape
    env = {
        names.get("MODEL_ID", "MODEL_ID"): medusa_dirs(plan)[0]
        if _has_medusa(plan)
        else model_dir(plan),
        names.get("NUM_SHARD", "NUM_SHARD"): str(plan.tp_degree),
        "MAX_INPUT_LENGTH": str(shape.max_input_tokens),
    }
    if plan.max_prefill_tokens is not None:
        env["MAX_BATCH_PREFILL_TOKENS"] = str(plan.max_prefill_tokens)
    elif not _chunks(plan, dict(_asked(plan))):
        env["MAX_BATCH_PREFILL_TOKENS"] = str(max(shape.max_input_tokens, DEFAULT_PREFILL))
    env["MAX_TOTAL_TOKENS"] = str(shape.max_total_tokens)
    quantize = _quantize(plan)
    if quantize:
        # Also where config.json says it: with Medusa, TGI looks for it in the heads' own.
        env["QUANTIZE"] = quantize
    if plan.dtype in DTYPES and (not quantize or quantize in QUANTIZED_DTYPES.asked):
        env["DTYPE"] = DTYPES[plan.dtype]
    if plan.kv_dtype in KV_DTYPES:
        env["KV_CACHE_DTYPE"] = KV_DTYPES[plan.kv_dtype]
    if plan.draft is not None and plan.draft.speculative_tokens != plan.draft.heads:
        env["SPECULATE"] = str(plan.draft.speculative_tokens)  # as many as heads without it
    if shape.max_batch > DEFAULT_CONCURRENT:
        env["MAX_CONCURRENT_REQUESTS"] = str(shape.max_batch)
    if plan.gpu_memory_utilization != GPU_MEMORY_UTILIZATION:
        env |= _memory_share(plan)
    if not names:
        env |= {"HOSTNAME": "0.0.0.0", "PORT": str(PORT)}
    return env


def _memory_share(plan: Plan) -> dict[str, str]:
    """Give what makes TGI take the planned share of each GPU.

    It takes CUDA_MEMORY_FRACTION of the GPU, all of it unless set, and leaves out of that what
    TGI_WIGGLE_ROOM is below 1: `get_free_memory` of server/models/flash_causal_lm.py.
    """
    share = plan.gpu_memory_utilization
    room = schema_of(plan).options.get("TGI_WIGGLE_ROOM")
    kept = float(room.default) if room is not None and room.default else 1.0
    if share > kept:
        return {"TGI_WIGGLE_ROOM": str(share)}
    return {"CUDA_MEMORY_FRACTION": f"{math.floor(share / kept * 10_000) / 10_000:g}"}


def _asked(plan: Plan) -> dict[str, str]:
    return {env_name(name): value for name, value in plan.engine_options}


def _by_script(plan: Plan) -> bool:
    """Tell the image for SageMaker, whose script starts the launcher, from upstream's."""
    return plan.container.variant != "upstream"


def _quantize(plan: Plan) -> str:
    return QUANTIZE.get(checkpoint_format(plan), "") or load_time_quantization(plan)


def _medusa_config(plan: Plan, heads: str) -> RenderedFile:
    """Write the config.json that makes TGI load heads."""
    meant = medusa_config(plan)
    path = f"{heads}/config.json"
    text = render_template("tgi/medusa_config.json.j2", config=meant)
    check_json(path, text, meant)
    return RenderedFile(path=path, data=text.encode("ascii"))


def _check_format(plan: Plan) -> Iterator[Finding]:
    found = checkpoint_format(plan)
    if found and found not in QUANTIZE:
        message = f"TGI does not load weights in format {found!r}"
        yield Finding("error", "quantization-unsupported", message, "use --family vllm")
    else:
        yield from check_arrived("TGI", plan)


def _check_draft(plan: Plan) -> Iterator[Finding]:
    draft = plan.draft
    if draft is None:
        return
    if draft.kind not in schema_of(plan).draft_methods:
        yield from draft_unsupported(plan, "TGI", "use --family vllm, or Medusa heads, or ngram")
    if draft.kind != "medusa":
        return
    if not draft.heads or not draft.head_layers:
        message = "TGI needs to know how many Medusa heads there are, and of how many layers"
        yield Finding("error", "draft-incomplete", message, "the draft's config.json must say both")
    elif draft.speculative_tokens > draft.heads:
        message = f"{draft.heads} Medusa heads cannot propose {draft.speculative_tokens} tokens"
        hint = f"use --speculative-tokens {draft.heads}"
        yield Finding("error", "draft-too-short", message, hint)
    if draft.vocab_size and draft.vocab_size != plan.profile.vocab_size:
        message = f"TGI has no map for heads that score {draft.vocab_size} of the model's tokens"
        hint = "use heads with the whole vocabulary, or --family vllm"
        yield Finding("error", "draft-unsupported", message, hint)
    if draft.heads and not draft.biased:
        message = "TGI looks for a bias in every Medusa layer, and these have none"
        yield Finding("error", "draft-unsupported", message, "use --family vllm, up to 0.32")
    if draft.version == "v2":
        if checkpoint_format(plan) in UNSPLITTABLE_HEADS:
            message = (
                f"TGI cannot load Medusa v2 heads beside {checkpoint_format(plan)} weights: "
                "it looks for quantized heads"
            )
            yield Finding("error", "draft-unsupported", message, "use Medusa v1 heads, or fp8")
        if draft.head_layers > 1:
            message = f"TGI loads Medusa v2 heads of 1 layer, and these have {draft.head_layers}"
            yield Finding("error", "draft-unsupported", message, "use Medusa v1 heads")
        if plan.profile.hidden_size % plan.tp_degree:
            message = (
                f"Medusa v2 heads of {plan.profile.hidden_size} do not split in {plan.tp_degree}"
            )
            yield Finding("error", "draft-unsupported", message, "choose another tp_degree")


def check_cache(
    env: Mapping[str, str], facts: Facts = NO_FACTS, *, medusa: bool = False
) -> Iterator[Finding]:
    """Refuse an FP8 cache where the shards' attention would keep none."""
    attention, because = choose_attention(env, facts, medusa=medusa)
    if "KV_CACHE_DTYPE" not in env or attention in FP8_CACHE_ATTENTION:
        return
    message = f"TGI keeps an FP8 cache with flashinfer only, and runs {attention}: {because}"
    yield Finding("error", "kv-dtype-unsupported", message, "leave kv_dtype out")


def choose_attention(
    env: Mapping[str, str], facts: Facts, *, medusa: bool = False
) -> tuple[str, str]:
    """Return the attention that the launcher chooses, and why it is none of the default.

    What is not known of the model or the machine leads to the default.
    """
    if "ATTENTION" in env:
        return env["ATTENTION"], "ATTENTION says so"
    if medusa:
        because = "its launcher reads the config.json of the Medusa heads, which names no head size"
    elif facts.get("head_dim", 128) not in FLASHINFER_HEAD_DIMS:
        because = f"heads of {facts['head_dim']} are none of flashinfer's (64, 128, 256)"
    elif facts.get("model_type") in NEVER_FLASHINFER:
        because = f"its launcher decides so for models of type {facts['model_type']!r}"
    else:
        return "flashinfer", ""
    return "flashdecoding" if _capability(facts) >= CHUNKS_FROM_CAPABILITY else "paged", because


def runs_chunks(
    version: str, env: Mapping[str, str], facts: Facts = NO_FACTS, *, medusa: bool = False
) -> bool:
    """Report whether TGI computes long prompts in pieces (`server/models/model.py`).

    Paged attention does not, PREFILL_CHUNKING turns it off, and so does speculation.
    """
    key = version_key(version)
    is_old = key is not None and key.major < CHUNKS_SINCE
    if is_old or _capability(facts) < CHUNKS_FROM_CAPABILITY:
        return False
    if medusa or env.get("SPECULATE", "0") != "0":
        return False
    if env.get("PREFILL_CHUNKING", "1").lower() not in TRUE:
        return False
    attention, _ = choose_attention(env, facts, medusa=medusa)
    return attention in CHUNKING_ATTENTION and facts.get("model_type") not in NEVER_CHUNKED


def _capability(facts: Facts) -> float:
    found = facts.get("compute_capability", CHUNKS_FROM_CAPABILITY)
    return float(found) if isinstance(found, (int, float)) else CHUNKS_FROM_CAPABILITY


def _check_shards(plan: Plan) -> Iterator[Finding]:
    profile = plan.profile
    for what, count in (("attention", profile.heads), ("key-value", profile.kv_heads)):
        if count % plan.tp_degree:
            message = f"TGI cannot split {count} {what} heads over {plan.tp_degree} shards"
            hint = f"choose a tp_degree that divides {count}"
            yield Finding("error", "heads-not-divisible", message, hint)


def _chunks(plan: Plan, env: Mapping[str, str]) -> bool:
    version = plan.container.engine_version
    return plan.draft is None and runs_chunks(version, env, plan_facts(plan))


def _has_medusa(plan: Plan) -> bool:
    return plan.draft is not None and plan.draft.kind == "medusa"


def _conflict(message: str) -> Finding:
    return Finding("error", "options-conflict", f"TGI does not start: {message}")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_number(value: str) -> bool:
    return value.isascii() and value.isdecimal()
