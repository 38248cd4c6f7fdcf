"""Models that give vectors or scores in vLLM's options, as each version spells them.

The runner is stated outright: left alone, vLLM serves a decoder without `modules.json` as a chat
model.  Pooling is too: versions know modules of sentence-transformers by the names of their
classes, which that library changes, and take another way of pooling where they do not know one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.pooling import Pooling, PoolingTask
from packager.core.serving import SERVING_DIR, RenderedFile
from packager.core.versions import is_before
from packager.engines.rendering.check import check_pair_template
from packager.engines.rendering.environment import render_template
from packager.engines.schema import EngineSchema
from packager.engines.supported_models import converted_class

RUNNER, CONVERT, OVERRIDES = "runner", "convert", "hf-overrides"
POOLERS = ("pooler-config", "override-pooler-config")  # since 0.11.0; before
_POOLED = {"cls": "CLS", "mean": "MEAN", "last": "LAST"}

# Dense layers are found by the names of their classes: those of sentence-transformers up to 5.3
# by every version with a runner, newer ones since this version.
_OLD_CLASSES = "sentence_transformers.models."
NEW_CLASSES_SINCE = "0.32.0"

# /rerank and /score fill a template with the messages `query` and `document` since this version
# (vllm-project/vllm#30550); earlier ones join the two texts.  A tokenizer's own is never taken.
TEMPLATE = "chat-template"
TEMPLATE_SINCE = "0.14.0"
TEMPLATE_FILE = f"{SERVING_DIR}/rerank.jinja"

# Qwen3-Reranker scores by the logits of two tokens (vllm-project/vllm#19260).
_JUDGE = {
    "architectures": ["Qwen3ForSequenceClassification"],
    "classifier_from_token": ["no", "yes"],
    "is_original_qwen3_reranker": True,
}
WEB_SEARCH = "Given a web search query, retrieve relevant passages that answer the query"


def pooling_tasks(schema: EngineSchema, version: str) -> frozenset[PoolingTask]:
    """Return what a version serves: all that have `--runner`, none of the earlier ones."""
    if RUNNER not in schema.options or is_before(version, "0.10.2"):
        return frozenset()
    return frozenset(("embed", "rerank", "classify", "reward"))


def pooling_options(plan: Plan, schema: EngineSchema) -> dict[str, str | bool]:
    """Return the options of a pooling model; {} for others."""
    pooling = plan.profile.pooling
    if pooling is None:
        return {}
    options: dict[str, str | bool] = {RUNNER: "pooling"}
    container = plan.container
    turned = converted_class("vllm", container.engine_version, plan.profile.architecture)
    if (turned or pooling.is_converted) and CONVERT in schema.options and not pooling.judges:
        options[CONVERT] = "embed" if pooling.task == "embed" else "classify"
    overrides: dict[str, Any] = dict(_JUDGE) if pooling.judges else {}
    if pooling.truncates and not pooling.is_truncatable:
        overrides["is_matryoshka"] = True
    if pooling.lacks_positions:  # RobertaEmbedding reads it of every configuration
        overrides["position_embedding_type"] = "absolute"
    if overrides:
        options[OVERRIDES] = json.dumps(overrides, separators=(",", ":"))
    name = next((name for name in POOLERS if name in schema.options), "")
    config = _pooler(pooling, _keys(schema, name))
    if config and name:
        options[name] = json.dumps(config, separators=(",", ":"))
    if pooling.judges and not is_before(container.engine_version, TEMPLATE_SINCE):
        options[TEMPLATE] = TEMPLATE_FILE
    return options


def pooling_files(plan: Plan, options: Mapping[str, str | bool]) -> tuple[RenderedFile, ...]:
    """Write the template of a judge, where `options` name it: the model's own, or Qwen's."""
    pooling = plan.profile.pooling
    if pooling is None or options.get(TEMPLATE) != TEMPLATE_FILE:
        return ()
    if pooling.template:
        return (RenderedFile(path=TEMPLATE_FILE, data=pooling.template.encode()),)
    instruction = pooling.instruction or WEB_SEARCH
    text = render_template("vllm/rerank.jinja.j2", instruction=instruction)
    check_pair_template(TEMPLATE_FILE, text, instruction)
    return (RenderedFile(path=TEMPLATE_FILE, data=text.encode()),)


def check_template(who: str, plan: Plan) -> Iterator[Finding]:
    """Warn where this version joins a judge's texts without the template it is trained with."""
    pooling, version = plan.profile.pooling, plan.container.engine_version
    if pooling is None or not pooling.judges or not is_before(version, TEMPLATE_SINCE):
        return
    message = (
        "the model judges a query and a document in a template of its own; "
        f"{who} {version} joins the two texts as they are, so that ranks are not those of its card"
    )
    hint = f"use --container-version {TEMPLATE_SINCE} or later, or fill the template yourself"
    yield Finding("warning", "pooling-template", message, hint)


def check_modules(who: str, plan: Plan) -> Iterator[Finding]:
    """Yield an error for Dense modules that this version would leave out in silence."""
    pooling, version = plan.profile.pooling, plan.container.engine_version
    modules = pooling.modules if pooling is not None else None
    if modules is None or not modules.projections:
        return
    named = next((one for one in modules.types if one.endswith(".Dense")), "")
    if named.startswith(_OLD_CLASSES) or not is_before(version, NEW_CLASSES_SINCE):
        return
    message = f"{who} {version} does not know {named!r}: vectors would lack a projection"
    hint = (
        f"use --container-version {NEW_CLASSES_SINCE} or later, or name the class "
        f"'{_OLD_CLASSES}Dense' in the model's 'modules.json'"
    )
    yield Finding("error", "pooling-unsupported", message, hint)


def _keys(schema: EngineSchema, name: str) -> frozenset[str]:
    """Return the keys of the pooler's configuration; those of 0.10.2 where none are listed."""
    option = schema.options.get(name)
    if option is None or option.config is None:
        return frozenset(("pooling_type", "normalize", "dimensions", "activation"))
    return frozenset(option.config.fields)


def _pooler(pooling: Pooling, keys: frozenset[str]) -> dict[str, Any]:
    config: dict[str, Any] = {}
    kind = "seq_pooling_type" if "seq_pooling_type" in keys else "pooling_type"
    if pooling.pooled:
        config[kind] = _POOLED[pooling.pooled]
    if pooling.task == "embed":
        normalizes = bool(pooling.normalizes)
        config["normalize" if "normalize" in keys else "use_activation"] = normalizes
        if pooling.truncates:
            config["dimensions"] = pooling.truncates
    elif pooling.is_linear:
        config["use_activation" if "use_activation" in keys else "activation"] = False
    return config
