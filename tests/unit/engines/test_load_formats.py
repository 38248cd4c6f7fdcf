"""Faster ways of loading that a plan proposes, and where it stays silent."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from packager.core.artifact import Artifacts
from packager.core.findings import errors_in
from packager.core.versions import is_before, version_key
from packager.engines.load_formats import (
    TABLE,
    ChosenLoadFormat,
    LoadFormat,
    choose_load_format,
    load_formats,
    suggest_load_format,
)
from packager.engines.schema import find_schema
from tests.support.cases import cases
from tests.support.doubles.containers import FAMILIES
from tests.support.engine_plans import LLAMA_8B, plan_for

ENGINES = TABLE.parent / "engines"
NO_FILES = Artifacts(model=(), draft=())

LARGE = replace(LLAMA_8B, weight_bytes=140_000_000_000)


@cases("proposed")
def test_the_newest_that_the_image_holds_is_proposed(
    container: str, version: str, name: str
) -> None:
    plan = plan_for(container, profile=LARGE)
    plan = replace(plan, container=replace(plan.container, engine_version=version))

    hints = [found.hint for found in suggest_load_format(plan)]

    assert hints == ([f"try --load-format {name}; measure it on your own disk"] if name else [])


def test_small_weights_and_a_format_that_is_asked_for_need_no_proposal() -> None:
    assert list(suggest_load_format(plan_for("vllm"))) == []
    for asked in (("option.load_format", "auto"), ("--model-loader-extra-config", "{}")):
        plan = plan_for("vllm", profile=LARGE, engine_options=(asked,))
        assert list(suggest_load_format(plan)) == []


def chosen(container: str, asked: str, **changes: Any) -> ChosenLoadFormat:
    return choose_load_format(asked, plan_for(container, **changes), "m", compiles=False)


@cases("told")
def test_a_format_is_told_in_the_engine_s_own_options(
    container: str, asked: str, options: dict[str, str]
) -> None:
    found = chosen(container, asked)

    assert errors_in(found.findings) == ()
    assert (found.name, dict(found.options)) == (asked.partition(",")[0], options)


@cases("threads")
def test_every_family_takes_and_renders_threads(container: str, variable: str) -> None:
    plan = plan_for(container)
    plan = replace(plan, engine_options=chosen(container, "safetensors,threads=8").options)
    family = FAMILIES[plan.container.family]

    assert errors_in(family.check(plan)) == ()
    told = json.loads(family.render(plan, NO_FILES).env[variable])
    assert told == {"enable_multithread_load": True, "num_threads": 8}


@cases("auto")
def test_auto_takes_what_was_measured_for_such_weights_and_else_leaves_it_to_the_engine(
    container: str, weight_gb: float, name: str
) -> None:
    profile = replace(LLAMA_8B, weight_bytes=round(weight_gb * 1e9))
    found = chosen(container, "auto", profile=profile)

    [said] = found.findings
    assert found.name == name
    assert said.severity == "note"
    assert said.code == ("load-format-chosen" if name else "load-format-own")
    assert bool(found.options) == bool(name)


@cases("refused")
def test_what_the_engine_does_not_have_is_refused(container: str, asked: str, said: str) -> None:
    [error] = errors_in(chosen(container, asked).findings)

    assert said in error.message
    assert error.code == "load-format-unsupported"


@pytest.mark.parametrize(
    "row", [row for row in load_formats() if row.engine == "vllm"], ids=lambda row: row.name
)
def test_the_version_that_brought_a_format_has_it(row: LoadFormat) -> None:
    container = plan_for("vllm" if "nvidia" in row.devices else "vllm-cpu").container

    assert row.is_in(replace(container, engine_version=row.since))


def test_a_format_s_near_miss_is_guessed() -> None:
    [error] = errors_in(chosen("vllm", "fastsafetensor").findings)

    assert "fastsafetensors" in error.hint


@cases("the_engine_s_own_option_beside_it_is_a_conflict")
def test_the_engine_s_own_option_beside_it_is_a_conflict(option: str) -> None:
    [error] = errors_in(chosen("vllm", "safetensors", engine_options=((option, "{}"),)).findings)

    assert error.code == "options-conflict"


@cases("packages")
def test_a_package_that_may_be_missing_is_named(
    container: str, asked: str, codes: list[str]
) -> None:
    assert [found.code for found in chosen(container, asked).findings] == codes


def test_no_format_leaves_the_plan_alone() -> None:
    assert choose_load_format(None, plan_for("vllm"), "m", compiles=False) == ChosenLoadFormat()


BUCKET = "s3://models/llama/"


@cases("streamed")
def test_a_model_in_a_bucket_is_streamed_where_it_is_not_baked(
    container: str, changes: dict[str, Any], streams: bool
) -> None:
    fields = {"weights": "mounted", "load_format": "runai_streamer", "model": BUCKET, **changes}
    plan = plan_for(container, weights=fields["weights"])
    traits = FAMILIES[plan.container.family].traits(plan.container)
    plan = replace(plan, container=replace(plan.container, traits=traits))

    compiles = fields.get("compile", "off") != "off"
    found = choose_load_format(fields["load_format"], plan, fields["model"], compiles=compiles)

    assert found.streams_from == (BUCKET if streams else "")
    assert ("load-format-streams" in {one.code for one in found.findings}) is streams


def test_what_is_streamed_is_told_in_place_of_the_directory() -> None:
    plan = replace(plan_for("vllm", weights="mounted"), streams_from=BUCKET)

    assert FAMILIES["vllm"].render(plan, NO_FILES).env["SM_VLLM_MODEL"] == BUCKET


@pytest.mark.parametrize("row", load_formats(), ids=lambda row: f"{row.engine}-{row.name}")
def test_every_row_is_in_the_option_tables_from_its_version_on(row: LoadFormat) -> None:
    known = sorted(
        (path.stem.partition("-")[2] for path in ENGINES.glob(f"{row.engine}-*.json")),
        key=lambda version: version_key(version) or (),
    )
    having = [version for version in known if not is_before(version, row.since)]
    lacking = [version for version in known if version not in having]

    assert having
    assert all(row.name in values_of(row.engine, version) for version in having)
    if lacking and row.engine == "sglang":  # of vLLM, nothing here is for versions before 0.10.2
        assert row.name not in values_of(row.engine, lacking[-1])
    if row.threads and row.engine == "sglang":
        table = json.loads((ENGINES / f"sglang-{having[0]}.json").read_text(encoding="utf-8"))
        fields = table["configs"]["LoaderConfig"]["fields"]
        assert {row.threads, row.switch} - {""} <= set(fields)


def values_of(engine: str, version: str) -> tuple[str, ...]:
    option = find_schema(engine, version).options["load-format"]
    return (*option.choices, *option.values)


def test_what_is_proposed_has_a_measurement_and_every_row_a_source_and_a_date() -> None:
    for row in load_formats():
        assert bool(row.least_bytes) <= bool(row.measured)
        assert row.source
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", row.date)
        assert bool(row.switch) <= bool(row.threads)
        assert bool(row.package_since) <= bool(row.package)
