"""TGI's launcher: its options on a command line, and the variables that stand for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher

from packager.addons.check.arguments import Arguments, Given, Grammar, read_arguments
from packager.addons.check.engine_commands import start_of
from packager.addons.check.engines import KNOWN_VERSIONS
from packager.addons.check.locating import located
from packager.addons.check.plain import holds_secret
from packager.addons.check.targets import UPSTREAM
from packager.addons.check.values import ConfigTarget, DescribedServer, Remark, Setting
from packager.core.findings import Finding
from packager.core.positions import Place
from packager.core.suggestions import nearest
from packager.engines.rules import Facts
from packager.engines.schema import EngineSchema, check_version, find_schema
from packager.engines.tgi.attention import check_cache
from packager.engines.tgi.check import check_settings

# Options of a `bool` type that take a value on the command line (launcher/src/main.rs, `Args`).
VALUED = frozenset({"sharded"})
LIKENESS = 0.85  # of a misspelled name; NCCL_DEBUG is like NGROK_EDGE to 0.6


def check_tgi(server: DescribedServer, target: ConfigTarget, facts: Facts) -> Iterator[Remark]:
    """Find settings that the launcher refuses, does not read, or gets twice."""
    schema = find_schema("tgi", target.version)
    for unproven in check_version("TGI", target.version, schema):
        yield Remark(server.place, replace(unproven, hint=KNOWN_VERSIONS))
    arguments = _arguments(server, schema, target.version)
    yield from arguments.remarks
    on_command = arguments.settings()
    settings = {one.name: one for one in _of_environment(server.env, schema)}
    for name, given in on_command.items():
        variable = _variable(name)
        earlier = settings.get(variable)
        if earlier is not None:
            message = f"{variable!r} has no effect: {given.spelled!r} on the command line wins"
            found = Finding("warning", "setting-overridden", message, "set one of the two")
            yield Remark(earlier.place, found)
        settings[variable] = replace(given, name=variable)
    yield from _misspelled(server.env, schema)
    env = {
        name: str(one.value).lower() if isinstance(one.value, bool) else one.value
        for name, one in settings.items()
        if one.value is not None
    }
    shown = {name: value for name, value in env.items() if not holds_secret(name, value)}
    names: dict[str, Place] = {}
    for one in settings.values():
        names |= {one.spelled: one.place, one.name: one.place}
    by_script = target.variant != UPSTREAM and start_of(server) is None
    findings = [
        *check_settings(shown, target.version, facts, by_script=by_script),
        *check_cache(shown, facts),
    ]
    yield from located(findings, names, server.place)


def tgi_settings(server: DescribedServer, target: ConfigTarget) -> Mapping[str, Given]:
    """Return what the launcher ends up with, by its variables: the command line wins."""
    schema = find_schema("tgi", target.version)
    given = _arguments(server, schema, target.version).settings()
    in_env = {one.name: one for one in _of_environment(server.env, schema)}
    return {**in_env, **{_variable(name): one for name, one in given.items()}}


def _arguments(server: DescribedServer, schema: EngineSchema, version: str) -> Arguments:
    """Read the launcher's options."""
    start = start_of(server)
    words = start.arguments if start is not None else server.arguments
    return read_arguments(words, Grammar(who="TGI", schema=_command_line(schema), version=version))


def _variable(name: str) -> str:
    return name.upper().replace("-", "_")


def _command_line(schema: EngineSchema) -> EngineSchema:
    """Return the launcher's options by their names on a command line."""
    options = {}
    for name, option in schema.options.items():
        dashed = name.lower().replace("_", "-")
        is_flag = option.type == "bool" and dashed not in VALUED
        options[dashed] = replace(option, name=dashed, type="flag" if is_flag else option.type)
    return replace(schema, options=options)


def _of_environment(env: Sequence[Setting], schema: EngineSchema) -> Iterator[Given]:
    for setting in env:
        if setting.name in schema.options or setting.name in schema.exports.values():
            yield Given(
                name=setting.name,
                spelled=setting.name,
                place=setting.place,
                value=setting.value,
            )


def _misspelled(env: Sequence[Setting], schema: EngineSchema) -> Iterator[Remark]:
    """Find variables that are nearly the launcher's; others may be of the image or of CUDA."""
    known = (*schema.options, *schema.exports.values())
    for setting in env:
        close = "" if setting.name in known else nearest(setting.name, known)
        if close and SequenceMatcher(None, setting.name, close).ratio() >= LIKENESS:
            message = f"TGI's launcher does not read {setting.name!r}"
            found = Finding("error", "key-dropped", message, f"did you mean {close!r}?")
            yield Remark(setting.place, found)
