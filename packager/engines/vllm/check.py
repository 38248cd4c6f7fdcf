"""Checks of vLLM's options: against its parser's table, its drafts, and AWS's entrypoint."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from packager.core.documents import parse_json
from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.suggestions import guess
from packager.core.techniques import Draft
from packager.core.versions import is_before
from packager.engines.request_options import speculation_of
from packager.engines.rules import NO_FACTS, Facts, check_rules
from packager.engines.schema import EngineSchema, Option, check_value, check_version, versions_with
from packager.engines.shared import draft_unsupported
from packager.engines.successors import hint_for
from packager.engines.values import UNBOUNDED
from packager.engines.vllm.options import DRAFT_FIELD, speculative_config
from packager.engines.vllm.render import LISTS_AFTER, QUOTES_UNTIL, words_of


def check_options(
    who: str,
    options: Mapping[str, str | bool],
    schema: EngineSchema,
    facts: Facts = NO_FACTS,
    *,
    version: str = "",
) -> Iterator[Finding]:
    """Find options that this version does not have, values and combinations that it refuses.

    `version` is the engine's; the schema may be that of a similar version.
    """
    judged = dict(options)
    for name, value in options.items():
        option = schema.options.get(name)
        if option is None:
            yield _unknown(who, name, value, schema)
        elif isinstance(value, bool):
            yield from _check_switch(who, option, value=value)
        else:
            found = list(check_value(who, option, name, value, options))
            yield from found
            if found and option.bounds is not UNBOUNDED:
                del judged[name]  # a number that is refused by itself is reported once
    of_version = version or schema.version
    yield from check_rules(
        who, schema.engine, of_version, judged, facts=facts, options=schema.options
    )


def _unknown(who: str, name: str, value: str | bool, schema: EngineSchema) -> Finding:
    """Return the finding for an unknown option; a key inside JSON belongs into the JSON."""
    head, _, keys = name.partition(".")
    owner = schema.find(head)
    if keys and owner is not None and owner.type == "json":
        inner: object = value if isinstance(value, bool) else _json_of(value)
        for key in reversed(keys.replace("-", "_").split(".")):
            inner = {key: inner}
        message = f"{name!r} names a key inside {owner.name!r}, which is one JSON value"
        hint = f"write {owner.name}={json.dumps(inner, separators=(',', ':'))}"
        return Finding("error", "key-dropped", message, hint)
    message = f"{who} {schema.version} has no option {name!r}"
    return Finding("error", "key-dropped", message, hint_for(schema, name))


def _json_of(text: str) -> object:
    try:
        return parse_json(text.encode())
    except ValueError:
        return text


def check_proven(who: str, plan: Plan, schema: EngineSchema) -> Iterator[Finding]:
    """Warn that another version's options stand in for those of the plan's."""
    yield from check_version(who, plan.container.engine_version, schema)


def check_draft(who: str, plan: Plan, schema: EngineSchema) -> Iterator[Finding]:
    """Refuse a draft that this version cannot use, and settings of it that it does not read."""
    if plan.draft is None:
        return
    if not {plan.draft.kind, plan.draft.method} & schema.draft_methods:
        named = f"{who} {plan.container.engine_version}"
        versions = versions_with(plan.draft.kind)
        known = f"those from {versions[0]} to {versions[-1]} have it; " if versions else ""
        hint = f"{known}choose another container version, or another draft"
        yield from draft_unsupported(plan, named, hint)
        return
    if plan.draft.kind == "medusa":
        yield from _check_medusa(who, plan.draft)
    field = schema.find(DRAFT_FIELD)
    if field is None or field.config is None:  # else its value is checked with the others
        yield from check_draft_keys(who, speculative_config(plan), schema)


def check_requested_draft(who: str, plan: Plan, schema: EngineSchema) -> Iterator[Finding]:
    """Refuse a speculative configuration among the engine's options that this version lacks."""
    config = speculation_of(dict(plan.engine_options))
    if config is not None:
        yield from check_draft_config(who, config, schema)


def check_draft_config(
    who: str, config: Mapping[str, Any], schema: EngineSchema
) -> Iterator[Finding]:
    """Refuse a speculative configuration with a method or a key that this version lacks."""
    method = config.get("method")
    if isinstance(method, str) and method not in schema.draft_methods:
        message = f"{who} {schema.version} has no method {method[:40]!r} of speculation"
        otherwise = "use --draft, or another container version"
        hint = guess(method, schema.draft_methods, otherwise)
        yield Finding("error", "draft-unsupported", message, hint)
    field = schema.find(DRAFT_FIELD)
    if field is None or field.config is None:  # else its value is checked with the others
        yield from check_draft_keys(who, config, schema)


def check_draft_keys(
    who: str, config: Mapping[str, Any], schema: EngineSchema
) -> Iterator[Finding]:
    """Find keys of a speculative configuration that this version does not have."""
    for key in config:
        if key not in schema.draft_keys:
            message = f"{who} {schema.version} has no {key!r} in its speculative configuration"
            hint = guess(key, schema.draft_keys, "leave it out")
            yield Finding("error", "key-dropped", message, hint)


def _check_medusa(who: str, draft: Draft) -> Iterator[Finding]:
    if draft.version == "v2":
        message = f"{who} loads Medusa v2 heads only with the model's own lm_head among them"
        hint = "use Medusa v1 heads, or --family tgi"
        yield Finding("error", "draft-unsupported", message, hint)
    if not draft.heads or not draft.head_layers:
        message = f"{who} needs to know how many Medusa heads there are, and of how many layers"
        hint = "state medusa_num_heads and medusa_num_layers in the draft's config.json"
        yield Finding("error", "draft-incomplete", message, hint)


def _check_switch(who: str, option: Option, *, value: bool) -> Iterator[Finding]:
    if option.type == "flag" and not value:
        message = f"{who} cannot turn {option.name!r} off; it is off unless it is given"
        yield Finding("error", "value-refused", message, "leave it out")
    elif option.type not in {"flag", "switch"}:
        message = f"{who} refuses {str(value).lower()!r} for {option.name!r}, which takes a value"
        yield Finding("error", "value-refused", message, f"write {option.name}=VALUE")


def check_sagemaker_env(
    options: Mapping[str, str | bool], version: str, schema: EngineSchema
) -> Iterator[Finding]:
    """Find values that the image's entrypoint would read as something else."""
    for name, value in options.items():
        if isinstance(value, bool):
            continue
        words = words_of(schema, name, value)
        if value.strip().lower() in {"true", "false"} or "\n" in value or not value:
            message = f"the image reads {value!r} for {name!r} as a switch, and drops the value"
            yield Finding("error", "value-refused", message, "choose another value")
        elif words == (value,) or is_before(version, QUOTES_UNTIL):
            continue
        elif is_before(LISTS_AFTER, version):
            if "" in words or not words:
                message = f"the image drops an empty value of {name!r}"
                yield Finding("error", "value-refused", message, "leave it out")
        elif len(words) != 1:
            message = f"the image passes one value for {name!r}, and {len(words)} are given"
            yield Finding("error", "value-refused", message, "give one, or use upstream's image")
