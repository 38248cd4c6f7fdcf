"""Options made from fields: one declaration for help, types, bounds and defaults."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

import click
import pytest
from click.testing import CliRunner
from pydantic import Field

from packager.addons.bench.commands.draft_measure import measure
from packager.addons.bench.draft_measure.run import DraftMeasureOptions
from packager.addons.fleet.cluster import Cluster
from packager.addons.fleet.commands.warm import kubernetes
from packager.cli.commands.build import build
from packager.cli.commands.draft_train import train
from packager.cli.commands.evaluate import evaluate
from packager.cli.commands.plan import plan
from packager.cli.field_options import options_from, take_fields
from packager.core.fields import CommandOption
from packager.core.quality import EVALUATION_SAMPLES, EVALUATION_TOKENS, Evaluation
from packager.core.request import BuildRequest
from packager.core.speculation import Demands
from packager.core.training import LEARNING_RATE, TOKENS, HeadTraining
from packager.estimate.performance.presets import TPOT_LIMIT_S
from tests.support.cases import cases, read_tables

TABLES = read_tables(__file__)


def options_of(command: click.Command) -> dict[str, click.Option]:
    return {str(one.name): one for one in command.params if isinstance(one, click.Option)}


def test_every_field_of_a_request_is_an_option_of_build_and_in_its_order() -> None:
    found = [name for name in options_of(build) if name in BuildRequest.model_fields]

    assert sorted(found) == sorted(BuildRequest.model_fields)
    elsewhere = {"base", "outputs"}  # beside the other options about images
    assert [name for name in found if name not in elsewhere] == [
        name for name in BuildRequest.model_fields if name not in elsewhere
    ]


def test_a_renamed_option_is_taken_by_its_earlier_name_and_shown_by_its_own() -> None:
    @click.command()
    @options_from(BuildRequest, "ttft_limit_ms", "tpot_limit_ms")
    def command(**given: Any) -> None:
        click.echo(given)

    run = CliRunner().invoke

    assert run(command, ["--ttft-limit-ms", "5", "--tpot-ms", "7"]).output == (
        "{'ttft_limit_ms': 5.0, 'tpot_limit_ms': 7.0}\n"
    )
    assert "limit" not in run(command, ["--help"]).output


def test_a_plan_takes_what_a_build_takes_but_for_places_of_images() -> None:
    fields = BuildRequest.model_fields

    assert {*options_of(plan)} & {*fields} == {*fields} - {"base", "outputs"}


@pytest.mark.parametrize("name", BuildRequest.model_fields)
def test_help_and_bounds_are_those_of_the_schema(name: str) -> None:
    schema = BuildRequest.model_json_schema()["properties"][name]
    option = options_of(build)[name]

    described = schema["description"].replace("`", "")
    assert option.help is not None
    assert option.help.removesuffix(" Repeatable.").lower() == f"{described}.".lower()
    kinds = [schema, *schema.get("anyOf", ())]
    words = next((kind["enum"] for kind in kinds if "enum" in kind), None)
    if words and isinstance(option.type, click.Choice):
        assert list(option.type.choices) == words
    if isinstance(option.type, click.IntRange):
        number = next(kind for kind in kinds if kind.get("type") == "integer")
        assert (option.type.min, option.type.max) == (number["minimum"], number["maximum"])


def test_defaults_that_help_names_are_those_that_are_used() -> None:
    text = {name: option.help or "" for name, option in options_of(build).items()}
    training = {name: option.help or "" for name, option in options_of(train).items()}

    assert f"; {EVALUATION_SAMPLES} by default" in text["evaluate_samples"]
    assert f"; {EVALUATION_TOKENS} by default" in text["evaluate_tokens"]
    assert f"; {TPOT_LIMIT_S * 1e3:.0f} by default" in text["tpot_limit_ms"]
    assert f", {TOKENS['eagle3']} by default" in training["speculative_tokens"]
    assert f", {LEARNING_RATE['medusa']} by default" in training["learning_rate"]


@pytest.mark.parametrize(
    ("owner", "command", "not_options"),
    [
        (HeadTraining, train, set()),
        (Evaluation, evaluate, set()),
        (Demands, measure, set()),
        (DraftMeasureOptions, measure, {"samples"}),
        (Cluster, kubernetes, {"pin_nodes"}),
    ],
)
def test_every_field_of_a_dataclass_is_an_option(
    owner: Any, command: click.Command, not_options: set[str]
) -> None:
    names = {field.name for field in fields(owner)} - not_options

    assert names <= {*options_of(command)}


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Fields of each kind."""

    word: Annotated[Literal["a", "b"], Field(description="a word")] = "b"
    left_open: Annotated[int, Field(ge=1, description="a number")] = 0
    zero: Annotated[int, Field(ge=0, description="a number")] = 0
    share: Annotated[float, Field(gt=0, lt=1, description="part")] = 0.5
    numbers: Annotated[
        tuple[Annotated[int, Field(ge=1, le=99)], ...],
        Field(description="numbers"),
        CommandOption(flag="--list"),
    ] = (1, 2)
    words: Annotated[tuple[str, ...], Field(description="words")] = ()
    ours: str = "not an option"


@click.command()
@options_from(Sample)
def sample(**given: Any) -> None:
    click.echo(take_fields(Sample, given))
    assert not given


def run(*arguments: str) -> str:
    return CliRunner().invoke(sample, arguments).output.strip()


def test_without_options_the_fields_have_their_defaults() -> None:
    assert run() == repr(Sample())


def test_options_are_converted_to_the_fields_types() -> None:
    given = ("--word", "a", "--left-open", "3", "--list", "4,5", "--words", "x", "--words", "y")

    assert run(*given) == repr(Sample(word="a", left_open=3, numbers=(4, 5), words=("x", "y")))


@cases("what_a_field_does_not_allow_is_refused")
def test_what_a_field_does_not_allow_is_refused(arguments: tuple[str, ...], message: str) -> None:
    assert message in run(*arguments)


def test_help_shows_a_default_but_not_one_that_stands_for_none() -> None:
    shown = {name: option.show_default for name, option in options_of(sample).items()}

    assert shown == TABLES["help_shows_a_default_but_not_one_that_stands_for_none"]


def test_a_field_that_is_none_is_refused_when_options_are_made() -> None:
    with pytest.raises(KeyError, match="no described field 'modle'"):
        options_from(BuildRequest, "modle")
