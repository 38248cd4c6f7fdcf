"""Old LMI configurations in today's keys: a pure function, with a finding for every change.

Takes serving.properties, or the environment of a container (`OPTION_*`, LMI's own
and the names of TGI that LMI understands), of LMI 10 and later for vLLM, lmi-dist
and their predecessors.  Keys without a successor are left out and reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from packager.core.findings import Finding
from packager.core.suggestions import guess
from packager.engines.lmi.options import lmi_options
from packager.engines.schema import EngineSchema
from packager.engines.vllm.check import check_draft_keys

ASYNC = {
    "option.async_mode": "true",
    "option.rolling_batch": "disable",
    "option.entryPoint": "djl_python.lmi_vllm.vllm_async_service",
}
OLD_BATCHES = ("lmi-dist", "vllm", "auto", "scheduler", "deepspeed", "disable")

# Environment names that LMI's entrypoint translates, with the key they become.
ENVIRONMENT = {
    "TENSOR_PARALLEL_DEGREE": "option.tensor_parallel_degree",
    "PIPELINE_PARALLEL_DEGREE": "option.pipeline_parallel_degree",
    "SM_NUM_GPUS": "option.tensor_parallel_degree",
    "HF_MODEL_ID": "option.model_id",
    "HF_REVISION": "option.revision",
    "HF_MODEL_QUANTIZE": "option.quantize",
    "HF_MODEL_TRUST_REMOTE_CODE": "option.trust_remote_code",
    "MAX_BATCH_PREFILL_TOKENS": "option.max_rolling_batch_prefill_tokens",
    "MAX_BATCH_SIZE": "option.max_rolling_batch_size",
    "CUDA_MEMORY_FRACTION": "option.gpu_memory_utilization",
}
RENAMED = {
    "option.quantization": "option.quantize",
    "option.max_num_seqs": "option.max_rolling_batch_size",
    "option.tensor_parallel_size": "option.tensor_parallel_degree",
    "option.max_num_batched_tokens": "option.max_rolling_batch_prefill_tokens",
}
DTYPES = {"half": "fp16", "float": "fp32"}

# The draft's old keys, of lmi-dist and of vLLM in LMI 13 and 14.
DRAFT_MODEL_KEYS = ("option.speculative_draft_model", "option.speculative_model")
DRAFT_TOKENS_KEYS = ("option.speculative_length", "option.num_speculative_tokens")
DRAFT_SETTINGS = {
    "option.draft_model_tp_size": "draft_tensor_parallel_size",
    "option.speculative_draft_tensor_parallel_size": "draft_tensor_parallel_size",
    "option.ngram_prompt_lookup_max": "prompt_lookup_max",
    "option.ngram_prompt_lookup_min": "prompt_lookup_min",
}
LEGACY_KEYS = frozenset({*DRAFT_MODEL_KEYS, *DRAFT_TOKENS_KEYS, *DRAFT_SETTINGS, *RENAMED})
DEFAULT_TOKENS = 5  # of LMI's speculative_length
NGRAM = "[ngram]"

OF_THE_CHECKPOINT = ("awq", "gptq", "compressed-tensors", "marlin", "squeezellm")
AT_LOAD = ("fp8", "bitsandbytes")
OF_A_JOB = re.compile(r"option\.(awq_|fp8_|calib_|smoothquant_)")


def migrate(
    old: Mapping[str, str], schema: EngineSchema, release: int
) -> tuple[dict[str, str], tuple[Finding, ...]]:
    """Convert an old configuration into one for a release of LMI with this vLLM.

    Returned are today's settings, and what became of every old one that changed.
    """
    findings: list[Finding] = []
    keys = dict(_read(old, findings))
    draft = _take_draft(keys, schema, findings)
    _engine_and_mode(keys, findings)
    _quantize(keys, findings)
    dtype = keys.get("option.dtype", "")
    if dtype in DTYPES:
        keys["option.dtype"] = DTYPES[dtype]
        findings.append(_moved("option.dtype", f"{dtype!r} is {DTYPES[dtype]!r} now"))
    if draft:
        keys["option.speculative_config"] = json.dumps(draft, separators=(",", ":"))
    known = lmi_options(schema, release).types
    for key in [key for key in keys if key not in known]:
        del keys[key]
        findings.append(_dropped(key, known))
    return keys, tuple(findings)


def _read(old: Mapping[str, str], findings: list[Finding]) -> Iterator[tuple[str, str]]:
    """Yield today's name of every key, before its value is converted."""
    for key, value in old.items():
        if key.startswith("SERVING_"):
            continue  # settings of the server itself: they are the same
        name = _key_of(key)
        renamed = RENAMED.get(name, name)
        if name == "enforce-eager":
            renamed, value = "option.enforce_eager", str(value.lower() != "true").lower()
        if renamed != key:
            findings.append(_moved(key, f"it is {renamed!r} now"))
        yield renamed, value


def _key_of(key: str) -> str:
    if key == "OPTION_ENTRYPOINT":
        return "option.entryPoint"
    if key == "OPTION_ENGINE":
        return "engine"
    if key.startswith("OPTION_"):
        return f"option.{key.removeprefix('OPTION_').lower()}"
    if key == "ENABLE_CUDA_GRAPHS":
        return "enforce-eager"
    return ENVIRONMENT.get(key, key)


def _engine_and_mode(keys: dict[str, str], findings: list[Finding]) -> None:
    engine, batch = keys.get("engine", "Python"), keys.get("option.rolling_batch", "auto")
    if engine != "Python":
        findings.append(
            _moved("engine", f"{engine!r} is 'Python' now: vLLM starts its own workers")
        )
    keys["engine"] = "Python"
    if batch == "trtllm":
        message = "a configuration for TensorRT-LLM has no equivalent in LMI with vLLM"
        hint = "keep the TensorRT-LLM container, or plan again with --family lmi"
        findings.append(Finding("error", "value-refused", message, hint))
    elif batch not in OLD_BATCHES:
        message = f"{batch!r} is not a rolling batch of LMI"
        findings.append(Finding("error", "value-refused", message, "leave it out"))
    if any(keys.get(key) != value for key, value in ASYNC.items()):
        findings.append(_moved("option.rolling_batch", f"{batch!r} is the asynchronous mode now"))
    keys.update(ASYNC)


def _take_draft(
    keys: dict[str, str], schema: EngineSchema, findings: list[Finding]
) -> dict[str, Any]:
    """Remove the draft's old keys and return its speculative configuration."""
    model = _take(keys, DRAFT_MODEL_KEYS, findings)
    tokens = _take(keys, DRAFT_TOKENS_KEYS, findings)
    config: dict[str, Any] = {}
    if model:
        config = (
            {"method": "ngram"} if model == NGRAM else {"method": "draft_model", "model": model}
        )
        config["num_speculative_tokens"] = int(tokens) if tokens.isdecimal() else DEFAULT_TOKENS
    for key, name in DRAFT_SETTINGS.items():
        value = _take(keys, (key,), findings)
        if value and config:
            config[name] = int(value) if value.isdecimal() else value
    if model.startswith("s3://"):
        message = f"LMI does not download {model!r} from within a speculative configuration"
        hint = "mount it as a channel, or bake it into the image with --draft"
        findings.append(Finding("error", "value-refused", message, hint))
    if tokens and not model:
        message = "a number of speculative tokens without a draft model does nothing"
        findings.append(Finding("warning", "key-dropped", message, "name a draft with --draft"))
    if config and "option.speculative_config" in keys:
        message = "option.speculative_config and keys of an older draft are both set"
        findings.append(Finding("error", "options-conflict", message, "keep one of them"))
    if config.get("method") == "ngram" and "prompt_lookup_max" not in config:
        config["prompt_lookup_max"] = config["num_speculative_tokens"]
    findings += check_draft_keys("vLLM", config, schema)
    return config


def _take(keys: dict[str, str], names: tuple[str, ...], findings: list[Finding]) -> str:
    taken = ""
    for name in names:
        if name in keys:
            taken = keys.pop(name)
            findings.append(_moved(name, "it is part of 'option.speculative_config' now"))
    return taken


def _quantize(keys: dict[str, str], findings: list[Finding]) -> None:
    method = keys.get("option.quantize", "")
    if not method:
        return
    if method in OF_THE_CHECKPOINT:
        del keys["option.quantize"]
        reason = f"the checkpoint says itself that it is {method!r}; the key turns Marlin off"
        findings.append(_moved("option.quantize", reason))
    elif method not in AT_LOAD:
        del keys["option.quantize"]
        message = f"LMI with vLLM does not quantize with {method!r}"
        hint = "quantize ahead of time with --quantize, or leave it out"
        findings.append(Finding("error", "value-refused", message, hint))


def _dropped(key: str, known: Mapping[str, object]) -> Finding:
    if OF_A_JOB.match(key):
        hint = "it belongs to quantizing, not to serving: use --quantize"
    else:
        hint = guess(key, known, "leave it out")
    return Finding("warning", "key-dropped", f"LMI does not read {key!r} any more", hint)


def _moved(key: str, what: str) -> Finding:
    return Finding("note", "key-migrated", f"{key!r}: {what}")
