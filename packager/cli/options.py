"""Options of requests and of containers, and how they become a request."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from packager.cli.choices import NameChoice
from packager.cli.field_options import Callback, options_from
from packager.cli.plugins.tables import FAMILIES, QUANTIZERS
from packager.cli.project import MARK, Project, find_project, read_project
from packager.cli.shared_options import Command
from packager.cli.terminal import note
from packager.core.documents import NotStrict, shorten
from packager.core.errors import UsageError
from packager.core.files.user_files import read_table, read_user_file
from packager.core.request import (
    MOST_GPUS,
    YAML_SUFFIXES,
    BuildRequest,
    InvalidFields,
    parse_request,
    refuse_unknown,
)
from packager.core.suggestions import other_word
from packager.core.text import remember_variables


def _gpu_choice(
    context: click.Context,  # noqa: ARG001
    parameter: click.Parameter,  # noqa: ARG001
    text: str | None,
) -> int | str | None:
    if text is None or text == "auto":
        return text
    if text.isascii() and text.isdecimal() and len(text) < 4 and int(text) <= MOST_GPUS:
        return int(text)
    word = other_word("gpus", text)
    raise UsageError(
        f"--gpus {text[:20]!r} is not a number from 0 to {MOST_GPUS}",
        hint=f"write --gpus {word.ours}"
        if word
        else "use `--gpus auto`, or `--gpus 0` for the processor",
    )


def _pairs(
    context: click.Context,  # noqa: ARG001
    parameter: click.Parameter,
    pairs: tuple[str, ...],
) -> dict[str, str] | None:
    flag = parameter.opts[0]
    wrong = next((pair for pair in pairs if "=" not in pair), None)
    if wrong is not None:
        raise UsageError(f"{flag} {wrong!r} has no value", hint=f"write {flag} {wrong}=VALUE")
    return dict(pair.split("=", 1) for pair in pairs) or None


def _distinct_pairs(
    context: click.Context, parameter: click.Parameter, pairs: tuple[str, ...]
) -> dict[str, str] | None:
    found = _pairs(context, parameter, pairs)
    if found is not None and len(found) < len(pairs):
        names = [pair.partition("=")[0] for pair in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        flag = parameter.opts[0]
        raise UsageError(f"{flag} {twice!r} stands twice", hint="give each a name of its own")
    return found


_TARGET = "packager.target"  # in the context of a command: the name of a target
_PROJECT = "packager.project"  # the project file that the command read
_MODEL = "packager.model"  # in the context of a command: the model typed as a bare word


def _keep_model(context: click.Context, parameter: click.Parameter, word: str | None) -> None:  # noqa: ARG001
    if word is not None and word.startswith(MARK):
        choose_target(word.removeprefix(MARK))
    elif word is not None:
        context.meta[_MODEL] = word


def _take_model(
    context: click.Context,
    parameter: click.Parameter,  # noqa: ARG001
    text: str | None,
) -> str | None:
    word: str | None = context.meta.get(_MODEL)
    if word and text and word != text:
        raise UsageError(
            f"two models are given: {shorten(word, 200)} and --model {shorten(text, 200)}",
            hint="write one of them",
        )
    return text if word is None else word


def choose_target(name: str) -> None:
    """Set the target of the project file whose fields the command's requests have."""
    click.get_current_context().meta[_TARGET] = name


def chosen_target() -> str | None:
    """Return the target that the command's requests are of; None where none was named."""
    name: str | None = click.get_current_context().meta.get(_TARGET)
    return name


def open_project() -> Project:
    """Read the project file of the working directory once, and print its path."""
    meta = click.get_current_context().meta
    if _PROJECT not in meta:
        meta[_PROJECT] = read_project(find_project(Path.cwd(), Path.home()))
        note(f"targets are those of {meta[_PROJECT].path}")
    found: Project = meta[_PROJECT]
    return found


def _target_fields() -> dict[str, Any]:
    context = click.get_current_context(silent=True)
    name = context.meta.get(_TARGET) if context is not None else None
    return open_project().fields_of(name) if name is not None else {}


model_argument = click.argument(
    "model_word",
    metavar="[MODEL|@TARGET]",
    required=False,
    is_eager=True,  # before --model, which takes it over
    expose_value=False,
    callback=_keep_model,
)

_CHOICES = {"family": NameChoice(lambda: FAMILIES)}
_CALLBACKS: Mapping[str, Callback] = {
    "model": _take_model,
    "gpus": _gpu_choice,
    "engine_options": _pairs,
    "adapters": _distinct_pairs,
}


request_choices: dict[str, Any] = {"callbacks": _CALLBACKS, "choices": _CHOICES}


def request_fields(*names: str) -> Callable[[Command], Command]:
    """Return a decorator that adds the options of these fields of a request."""
    return options_from(BuildRequest, *names, callbacks=_CALLBACKS, choices=_CHOICES)


gpus_option = request_fields("gpus")
threads_option = request_fields("threads")
executor_option = request_fields("executor")
address_option = request_fields("address")

request_file_option = click.option(
    "--request",
    "request_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Read the request from a TOML, JSON or YAML file; options win.",
)


def _keep_mapped(
    context: click.Context,
    parameter: click.Parameter,  # noqa: ARG001
    texts: tuple[str, ...],
) -> None:
    from packager.models.mapped import parse_mapped

    context.meta[_MAPPED] = parse_mapped(texts) if texts else {}


_MAPPED = "packager.jumpstart"  # in the context of a command: ids of models that it maps
jumpstart_option = click.option(
    "--jumpstart",
    multiple=True,
    expose_value=False,
    callback=_keep_mapped,
    metavar="ID=PLACE|FILE",
    help="Where a model is whose id is given: s3://BUCKET/PREFIX or a directory; or a file of "
    "such. Repeatable.",
)


def mapped_place(model: str) -> str:
    """Return the place that an id is mapped to, by the command or the user's file; else itself."""
    if "/" in model or not model:
        return model
    context = click.get_current_context(silent=True)
    mapped = context.meta.get(_MAPPED, {}) if context is not None else {}
    if model not in mapped:
        from packager.models.mapped import parse_mapped, standing_file

        mapped = parse_mapped((), standing_file(os.environ))
    return mapped[model].place if model in mapped else model


def _keep_quantizer(
    context: click.Context,
    parameter: click.Parameter,  # noqa: ARG001
    name: str | None,
) -> None:
    if name is not None:
        context.meta[_QUANTIZER] = name


_QUANTIZER = "packager.quantizer"  # in the context of a command: who is to quantize
quantizer_option = click.option(
    "--quantizer",
    type=NameChoice(lambda: QUANTIZERS),
    expose_value=False,
    callback=_keep_quantizer,
    help="Who quantizes: `stream` while weights are read, or a tool such as `llmcompressor`; by "
    "default the stream where it gives the same result.",
)


def _with_quantizer(fields: dict[str, Any]) -> None:
    """Write the name that `--quantizer` gives before the method, as requests have it."""
    context = click.get_current_context(silent=True)
    name = context.meta.get(_QUANTIZER) if context is not None else None
    if name is None:
        return
    method = fields.get("quantize")
    if not isinstance(method, str) or ":" in method or method in ("none", "auto"):
        raise UsageError(
            f"--quantizer {name} has no method, or one that names a quantizer",
            hint=f"add a method, such as --quantize fp8, or write --quantize {name}:fp8",
        )
    fields["quantize"] = f"{name}:{method}"


env_option = click.option(
    "--env",
    multiple=True,
    metavar="NAME=VALUE",
    help="Environment of the container, such as OMP_NUM_THREADS=1 on a busy machine.",
)


def container_environment(pairs: tuple[str, ...]) -> dict[str, str]:
    """Parse `--env NAME=VALUE`; refuse what lets a server run code from a model's files."""
    if not pairs:
        return {}
    from packager.engines.shared import NEVER_PACKAGED, asks_for_code

    wrong = next((pair for pair in pairs if "=" not in pair), None)
    if wrong is not None:
        raise UsageError(f"--env {wrong!r} has no value", hint=f"write --env {wrong}=VALUE")
    found = dict(pair.split("=", 1) for pair in pairs)
    for name, value in found.items():
        if asks_for_code(name, value):
            raise UsageError(
                f"--env {name[:60]!r} lets the server run code from the model's files",
                hint=NEVER_PACKAGED,
            )
    remember_variables(found)
    return found


def request_options(command: Command) -> Command:
    """Add every option of a request but the places of images, which only a build has."""
    add = options_from(
        BuildRequest, leave_out=("base", "outputs"), callbacks=_CALLBACKS, choices=_CHOICES
    )
    return add(quantizer_option(request_file_option(jumpstart_option(command))))


_NEEDED = {
    "model": "DIR or --model ORG/NAME",
    "instance": "TYPE such as ml.g5.xlarge, --instance local for this machine",
}


def make_request(request_file: Path | None, **given: Any) -> BuildRequest:
    """Merge the request file and the options; the options win."""
    fields = _target_fields()
    if fields and request_file:
        raise UsageError("a target and a request file are given", hint="name one of them")
    fields |= read_request_fields(request_file) if request_file else {}
    for name in ("engine_options", "adapters"):
        stated, pairs = fields.get(name, {}), given.pop(name, None)
        if pairs and isinstance(stated, dict):  # what else it is, the request refuses
            given[name] = {**stated, **pairs}
    from_file = fields.keys() - {name for name, value in given.items() if value not in (None, ())}
    fields.update({name: value for name, value in given.items() if value not in (None, ())})
    _with_quantizer(fields)
    if isinstance(model := fields.get("model"), str):
        fields["model"] = mapped_place(model)
    for name, such in _NEEDED.items():
        if name not in fields:
            raise UsageError(
                f"no {name} is given",
                hint=f"add --{name} {such}, or name a request file with --request",
            )
    try:
        return parse_request(fields)
    except InvalidFields as error:
        if request_file is None or not error.names <= from_file:
            raise
        raise UsageError(f"{_label(request_file)}: {error.message}", hint=error.hint) from error


def _label(request_file: Path) -> str:
    return f"request file {shorten(str(request_file), 200)}"


def _read_request_table(path: Path) -> dict[str, Any]:
    what = "request file"
    hint = "name a TOML, JSON or YAML file with the fields of a request, such as model"
    if path.suffix.lower() not in YAML_SUFFIXES:
        return read_table(path, what=what, hint=hint)
    from packager.core.yaml_values import parse_yaml_table

    data = read_user_file(path, what=what, hint=hint)
    try:
        return parse_yaml_table(data)
    except NotStrict as error:
        raise UsageError(
            f"{shorten(str(path), 200)} cannot be parsed: {error}",
            hint="correct it: it is read as YAML",
        ) from error


def read_request_fields(path: Path) -> dict[str, Any]:
    """Read the fields of a request file; raise `UsageError` for those that no request has."""
    parsed = _read_request_table(path)
    refuse_unknown(parsed, _label(path))
    if "trust_roots" in parsed:
        from packager.models.trust_roots import refuse_foreign_trust

        refuse_foreign_trust(path)
    for name in ("outputs", "trust_roots"):
        if isinstance(parsed.get(name), list):
            parsed[name] = tuple(parsed[name])
    return parsed
