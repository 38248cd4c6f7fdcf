"""vLLM and SGLang: command lines, files for `--config`, and the images' variables."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from packager.addons.check.arguments import Arguments, Given, Grammar, read_arguments, vllm_grammar
from packager.addons.check.engine_commands import start_of, taken_before
from packager.addons.check.locating import located
from packager.addons.check.sagemaker import (
    ON_BY_DEFAULT,
    check_unread,
    image_options,
    without_secrets,
)
from packager.addons.check.targets import UPSTREAM
from packager.addons.check.values import ConfigTarget, DescribedServer, Remark, Setting, Word
from packager.core.findings import Finding, Severity
from packager.core.positions import Place
from packager.core.versions import is_before
from packager.engines.capability import check_capability
from packager.engines.lengths import judge_length
from packager.engines.request_options import speculation_of
from packager.engines.rules import Facts
from packager.engines.schema import EngineSchema, Option, check_version, find_schema
from packager.engines.sglang.check import check_options as check_sglang_options
from packager.engines.vllm.check import check_draft_config, check_options, check_sagemaker_env
from packager.engines.vllm.options import DRAFT_FIELD
from packager.engines.vllm.render import QUOTES_UNTIL

COMMAND_ALONE = "upstream's image takes a command line, and only AWS's images read such variables"
KNOWN_VERSIONS = "name a version whose options are known, with --for"
NO_ARGUMENTS = "the image's entrypoint accepts no arguments: it reads environment variables only"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDialect:
    """How an engine, and AWS's images with it, read settings."""

    who: str  # `vLLM`
    prefix: str  # of the variables that AWS's images make options of
    # Of a version; the third says whether the words may name a model.
    grammar: Callable[[EngineSchema, str, bool], Grammar]
    check: Callable[[_Case], Iterator[Finding]]
    quotes_until: str = ""  # images before this version split the command line as a shell does
    draft_option: str = ""  # whose JSON configures drafts
    leaves_false_out: bool = False  # `false` in a `--config` file turns no switch off


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """The options of one server that may be looked at."""

    options: Mapping[str, str | bool]
    schema: EngineSchema
    facts: Facts
    version: str
    one_word: bool  # the image's entrypoint passes every value as one word


def _vllm_findings(case: _Case) -> Iterator[Finding]:
    yield from check_options("vLLM", case.options, case.schema, case.facts, version=case.version)


def _sglang_findings(case: _Case) -> Iterator[Finding]:
    texts = _texts(case.options)
    yield from check_sglang_options(
        texts, case.schema, case.facts, version=case.version, one_word=case.one_word
    )


def _sglang_grammar(schema: EngineSchema, version: str, takes_model: bool) -> Grammar:
    return Grammar(
        who="SGLang", schema=schema, version=version, takes_model=takes_model, model="model-path"
    )


def _vllm_grammar(schema: EngineSchema, version: str, takes_model: bool) -> Grammar:
    return vllm_grammar(schema, version, takes_model=takes_model)


DIALECTS: Mapping[str, EngineDialect] = {
    "vllm": EngineDialect(
        who="vLLM",
        prefix="SM_VLLM_",
        grammar=_vllm_grammar,
        check=_vllm_findings,
        quotes_until=QUOTES_UNTIL,
        draft_option=DRAFT_FIELD,
        leaves_false_out=True,
    ),
    "sglang": EngineDialect(
        who="SGLang", prefix="SM_SGLANG_", grammar=_sglang_grammar, check=_sglang_findings
    ),
}


def check_engine(server: DescribedServer, target: ConfigTarget, facts: Facts) -> Iterator[Remark]:
    """Find what an engine of `DIALECTS` refuses, drops or changes of a server's settings."""
    schema, dialect = find_schema(target.family, target.version), DIALECTS[target.family]
    for unproven in check_version(dialect.who, target.version, schema):
        yield Remark(server.place, replace(unproven, hint=KNOWN_VERSIONS))
    settings, remarks = _read(server, target, schema)
    yield from remarks
    names = _names(settings.values())
    options = _options(settings.values())
    known, of_length = judge_length(
        f"{dialect.who} {target.version}",
        target.family,
        target.version,
        _texts(options),
        facts,
        environment=server.variables,
    )
    yield from located(of_length, names, server.place)
    case = _Case(
        options=options,
        schema=schema,
        facts=known,
        version=target.version,
        one_word=not _command(server, target)[1],
    )
    draft, config = settings.get(dialect.draft_option), speculation_of(_texts(options))
    if draft is not None and config is not None:
        yield from located(check_draft_config(dialect.who, config, schema), {}, draft.place)
    able = check_capability(dialect.who, target.family, target.version, options, facts)
    yield from located((*dialect.check(case), *able), names, server.place)


def engine_settings(server: DescribedServer, target: ConfigTarget) -> Mapping[str, Given]:
    """Return the options of a server by their own names, as its engine ends up with them."""
    return _read(server, target, find_schema(target.family, target.version))[0]


def _read(
    server: DescribedServer, target: ConfigTarget, schema: EngineSchema
) -> tuple[dict[str, Given], list[Remark]]:
    """Return the engine's settings, and findings about how they are set."""
    dialect, (command, by_command) = DIALECTS[target.family], _command(server, target)
    prefix = dialect.prefix
    arguments = read_arguments(command, _grammar(server, target, schema))
    given = [*_of_config(server.config, schema), *arguments.given]
    remarks = [*arguments.remarks, *_config_remarks(server.config, arguments, target)]
    if by_command and server.image:
        remarks += check_unread(server.env, prefix, COMMAND_ALONE)
    if not by_command:
        if server.arguments:
            first = server.arguments[0]
            dropped = Finding("error", "key-dropped", NO_ARGUMENTS, f"set {prefix}… variables")
            remarks.append(Remark(first.place, dropped))
        from_env = image_options(server.env, prefix, schema)
        remarks += from_env.remarks
        if dialect.quotes_until:
            remarks += _check_words(from_env.given, target)
        given += [_as_split(one, schema, target) for one in from_env.given]
    taken = taken_before(target.family)
    return {one.name: one for one in given if one.name not in taken}, remarks


def _command(server: DescribedServer, target: ConfigTarget) -> tuple[tuple[Word, ...], bool]:
    """Return the words that the engine's parser gets, and whether it gets a command line."""
    start = start_of(server)
    if start is not None:
        return start.arguments, True
    if server.config or target.variant == UPSTREAM:
        return (() if server.command else server.arguments), True
    return (), bool(server.command)


def _grammar(server: DescribedServer, target: ConfigTarget, schema: EngineSchema) -> Grammar:
    start = start_of(server)
    takes_model = start.takes_model if start is not None else True
    taken = taken_before(target.family) if takes_model else ()
    known = {name: Option(name=name, type="text") for name in taken}
    whole = replace(schema, options={**known, **schema.options}) if known else schema
    return DIALECTS[target.family].grammar(whole, target.version, takes_model)


def _options(settings: Iterable[Given]) -> dict[str, str | bool]:
    """Return what the engine's checks may look at: what is known, and no credential."""
    shown = without_secrets(list(settings))
    return {one.name: one.value for one in shown if one.value is not None}


def _texts(options: Mapping[str, str | bool]) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in options.items()
    }


def _of_config(config: Sequence[Setting], schema: EngineSchema) -> Iterator[Given]:
    """Read a `--config` file as the engine does: true is a bare option, false leaves it out."""
    for setting in config:
        name = setting.name.replace("_", "-")
        option = schema.find(name)
        if setting.value == "false":
            continue
        value: str | bool | None = True if setting.value == "true" else setting.value
        called = option.name if option is not None else name
        yield Given(name=called, spelled=setting.name, place=setting.place, value=value)


def _config_remarks(
    config: Sequence[Setting], arguments: Arguments, target: ConfigTarget
) -> Iterator[Remark]:
    schema = find_schema(target.family, target.version)
    for setting in config:
        option = schema.find(setting.name)
        if setting.value != "false" or option is None:
            continue
        if option.type == "switch" and DIALECTS[target.family].leaves_false_out:
            stays = "it stays on" if option.name in ON_BY_DEFAULT else "it keeps its default"
            message = f"vLLM leaves {setting.name!r} out for its `false`: {stays}"
            hint = f"write no-{option.name}: true to turn it off"
            severity: Severity = "error" if option.name in ON_BY_DEFAULT else "warning"
            yield Remark(setting.place, Finding(severity, "false-left-out", message, hint))
    for one in arguments.given:
        if one.name == "config" and isinstance(one.value, str):
            message = "the options in the file that `--config` names are not looked at"
            hint = "give that file to `packager check` as well"
            yield Remark(one.place, Finding("note", "config-not-read", message, hint))


def _check_words(given: Sequence[Given], target: ConfigTarget) -> Iterator[Remark]:
    """Find values that the image's entrypoint passes on changed."""
    places = {one.name: one.place for one in given}
    options = {one.name: one.value for one in without_secrets(given) if one.value is not None}
    schema = find_schema("vllm", target.version)
    yield from located(check_sagemaker_env(options, target.version, schema), places, Place(""))
    for one in without_secrets(given):
        if not isinstance(one.value, str):
            continue
        if _splits(target):
            yield from _split_again(one, schema)
        elif one.value.startswith("'") and one.value.endswith("'"):
            message = f"images from {QUOTES_UNTIL} on keep the single quotes around {one.spelled!r}"
            hint = "leave the quotes out"
            yield Remark(one.place, Finding("error", "quotes-kept", message, hint))


def _splits(target: ConfigTarget) -> bool:
    """Report whether the image splits its command line once more, as a shell does."""
    return is_before(target.version, DIALECTS[target.family].quotes_until)


def _split_again(one: Given, schema: EngineSchema) -> Iterator[Remark]:
    value, option = str(one.value), schema.options.get(one.name)
    words = _shell_words(value)
    begin = f"images before {QUOTES_UNTIL} split {one.spelled!r} as a shell would: "
    if not words:
        message = f"{begin}a quote in it has no end"
    elif '"' in value and '"' not in "".join(words):
        message = f"{begin}its double quotes are lost"
    elif len(words) > 1 and (option is None or not option.many):
        message = f"{begin}it becomes {len(words)} words"
    else:
        return
    hint = f"write {one.spelled}='…', with the single quotes in the value"
    yield Remark(one.place, Finding("error", "quotes-lost", message, hint))


def _shell_words(value: str) -> list[str]:
    try:
        return shlex.split(value)
    except ValueError:
        return []


def _as_split(one: Given, schema: EngineSchema, target: ConfigTarget) -> Given:
    """Return a value as the engine gets it; `_check_words` says where that is not meant."""
    if not isinstance(one.value, str):
        return one
    option = schema.options.get(one.name)
    words = _shell_words(one.value) if _splits(target) else []
    if len(words) > 1 and option is not None and option.many:
        return replace(one, value=json.dumps(words))
    if len(one.value) > 1 and one.value[0] == one.value[-1] == "'":
        return replace(one, value=one.value[1:-1])
    return one


def _names(settings: Iterable[Given]) -> dict[str, Place]:
    names: dict[str, Place] = {}
    for one in settings:
        names[one.spelled] = one.place
        names[one.name] = one.place
    return names
