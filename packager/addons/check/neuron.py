"""Hugging Face's vLLM for Neuron devices: `SM_ON_…` variables, and `optimum-cli neuron serve`.

The image's script lowers each name, gives it as an option, and gives the value behind it unless
that is empty: `false` turns a switch on as `true` does, and is a word of its own on the line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from packager.addons.check.arguments import Given, Grammar, read_arguments
from packager.addons.check.engine_commands import start_of
from packager.addons.check.locating import located
from packager.addons.check.sagemaker import SWITCHES, without_secrets
from packager.addons.check.values import ConfigTarget, DescribedServer, Remark, Setting
from packager.core.documents import shorten
from packager.core.findings import Finding, Severity
from packager.engines.neuron.serve import PREFIX, VARIANT, check_serve, serve_schema
from packager.engines.rules import Facts
from packager.engines.schema import EngineSchema, Option


def check_neuron(server: DescribedServer, target: ConfigTarget, facts: Facts) -> Iterator[Remark]:  # noqa: ARG001
    """Find what `serve`, or the vLLM behind it, refuses, overwrites or reads otherwise."""
    schema = serve_schema(target.version)
    start = start_of(server)
    if start is not None:
        decided = {name: Option(name=name, type="text") for name in schema.decides}
        known = replace(schema, options={**decided, **schema.options})
        grammar = Grammar(who=VARIANT, schema=known, version=schema.version, is_flexible=True)
        arguments = read_arguments(start.arguments, grammar)
        yield from arguments.remarks
        given = [one for one in arguments.given if one.name != "port"]
    else:
        given = list(_of_variables(server.env, schema))
        yield from _misread(server.env, schema)
    settings = {one.name: one for one in given}
    options = {
        one.name: one.value
        for one in without_secrets(list(settings.values()))
        if one.value is not None
    }
    places = {name: one.place for one in given for name in (one.name, one.spelled)}
    yield from located(check_serve(options, schema), places, server.place)


def _of_variables(env: Sequence[Setting], schema: EngineSchema) -> Iterator[Given]:
    for setting, name in _named(env):
        option = schema.find(name)
        negated = schema.find(name.removeprefix("no-")) if name.startswith("no-") else None
        value: str | bool | None = setting.value
        if option is None and negated is not None and negated.type == "switch":
            option, value = negated, False
        elif option is not None and option.type in SWITCHES:
            value = True
        called = option.name if option is not None else name
        yield Given(name=called, spelled=setting.name, place=setting.place, value=value)


def _misread(env: Sequence[Setting], schema: EngineSchema) -> Iterator[Remark]:
    """Find values after switches, and a port that is not reached from outside the container."""
    for setting, name in _named(env):
        option = schema.find(name) or schema.find(name.removeprefix("no-"))
        if option is not None and option.type in SWITCHES and setting.value:
            value = shorten(setting.value, 60)
            message = f"{setting.name!r} turns {name!r} on, and {value} is a word of its own"
            is_off = setting.value.strip().lower() == "false"
            hint = "leave the variable out" if is_off else "leave the value empty"
            severity: Severity = "error" if is_off else "warning"
            found = Finding(severity, "value-refused", message, hint)
            yield Remark(setting.place, found)
        elif name == "port" and setting.value != "8080":
            message = f"{setting.name!r} makes it listen where SageMaker does not ask: on 8080"
            found = Finding("warning", "options-conflict", message, "leave it out")
            yield Remark(setting.place, found)


def _named(env: Sequence[Setting]) -> Iterator[tuple[Setting, str]]:
    for setting in env:
        if setting.name.startswith(PREFIX):
            yield setting, setting.name.removeprefix(PREFIX).lower().replace("_", "-")
