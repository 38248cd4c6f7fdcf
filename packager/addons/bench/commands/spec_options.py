"""Options out of a workload specification of SageMaker's benchmark jobs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from packager.addons.bench.load.tokenizer import open_tokenizer
from packager.addons.bench.tokenizers import find_tokenizer
from packager.addons.bench.workload_spec import WorkloadSpec, read_workload_spec, without_prompts
from packager.cli.terminal import warn
from packager.core.errors import PackagerError, UsageError
from packager.core.workload import QUESTIONS

workload_spec_option = click.option(
    "--workload-spec",
    "spec_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Take options from a workload specification of SageMaker's benchmark jobs; options that "
    "are given win.",
)
_NOT_TUNED = {  # of a specification, with what they are called there
    "rate": "request_rate: candidates are measured by requests at a time",
    "arrivals": "arrival_pattern: candidates are measured by requests at a time",
    "find": "search_recipe: a tune looks for the best by itself",
}


def take_spec(path: Path, given: dict[str, Any]) -> None:
    """Set unset options of a benchmark from a specification.

    Without its tokenizer the server counts tokens, and the benchmark is the same.
    """
    spec = read_workload_spec(path)
    if spec.template_file and not given["request_template"]:
        given["request_template"] = str(_template_here(spec.template_file, path))
    _fill(given, _options(spec, path, given))
    if spec.tokenizer and not given["tokenizer"]:
        try:
            place = find_tokenizer(spec.tokenizer)
            open_tokenizer(place)
        except PackagerError as error:
            warn(
                f"the tokenizer of {path.name!r} is not used, so the server counts: {error.message}"
            )
        else:
            given["tokenizer"] = str(place)


def _template_here(named: str, spec: Path) -> Path:
    """Return the file of a template: as it is named, or beside the specification."""
    beside = spec.parent / Path(named).name
    found = next((one for one in (Path(named), beside) if one.is_file()), None)
    if found is None:
        raise UsageError(
            f"the request template {named!r} of {spec.name!r} is not here",
            hint=f"name it with --request-template FILE, or put it at {str(beside)!r}",
        )
    return found


def take_tune_spec(path: Path, given: dict[str, Any]) -> None:
    """Set unset options of a tune from a specification.

    A tune has rounds of its own, and its servers count tokens.
    """
    spec = read_workload_spec(path)
    if spec.uses_template:
        raise UsageError(
            f"{path.name!r} has payload_template: candidates are asked in OpenAI's form",
            hint="leave it out, or measure one server with `packager bench`",
        )
    options = dict(_options(spec, path, given))
    for name, part in _NOT_TUNED.items():
        if name in options:
            raise UsageError(
                f"{path.name!r} has {part}", hint="state concurrency, and leave it out"
            )
    passed = {"num_profile_runs": options.pop("rounds", None), "tokenizer": spec.tokenizer}
    for name in (name for name, value in passed.items() if value):
        warn(f"{name} of {path.name!r} is passed over: a tune decides that itself")
    prompt, answer = (options.pop(f"{way}_tokens", None) for way in ("input", "output"))
    if prompt or answer:
        lengths = (prompt or QUESTIONS.input_tokens, answer or QUESTIONS.output_tokens)
        options["workload"] = "{}:{}".format(*lengths)
    _fill(given, options)


def _options(spec: WorkloadSpec, path: Path, given: Mapping[str, Any]) -> Mapping[str, Any]:
    for note in spec.notes:
        warn(note)
    if spec.needs_data and not given["data"]:
        source = f"the data set {spec.dataset!r}" if spec.dataset else "a data set that it lacks"
        raise UsageError(
            f"the requests of {path.name!r} are those of {source}",
            hint="name a file of it with --data FILE: nothing is downloaded",
        )
    return without_prompts(spec.options) if given["data"] else spec.options


def _fill(given: dict[str, Any], options: Mapping[str, Any]) -> None:
    context = click.get_current_context()
    for name, value in options.items():
        if context.get_parameter_source(name) is ParameterSource.DEFAULT:
            given[name] = value
