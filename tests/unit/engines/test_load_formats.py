"""Faster ways of loading that a plan proposes, and where it stays silent."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from packager.core.artifact import Artifacts
from packager.core.model import ModelProfile
from packager.core.request import BuildRequest
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
from packager.findings import errors_in
from tests.support.doubles.containers import FAMILIES
from tests.support.engine_plans import LLAMA_8B, plan_for

ENGINES = TABLE.parent / "engines"
NO_FILES = Artifacts(model=(), draft=())

LARGE = replace(LLAMA_8B, weight_bytes=140_000_000_000)


@pytest.mark.parametrize(
    ("container", "version", "name"),
    [
        ("vllm-0.33", "0.33.0", "instanttensor"),
        ("vllm", "0.27.1", "fastsafetensors"),
        ("lmi", "0.26.0", "fastsafetensors"),
        ("vllm", "0.20.1", "fastsafetensors"),
        ("vllm", "0.20.0", ""),
        ("sglang", "0.5.17", ""),
        ("vllm-cpu", "0.32.0", ""),
    ],
)
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
    return choose_load_format(request_for(asked), plan_for(container, **changes))


def request_for(asked: str | None, **fields: Any) -> BuildRequest:
    return BuildRequest(**{"model": "m", "instance": "i", **fields, "load_format": asked})


@pytest.mark.parametrize(
    ("container", "asked", "options"),
    [
        ("vllm", "fastsafetensors", {"load-format": "fastsafetensors"}),
        (
            "vllm-cpu",
            "safetensors,threads=4",
            {
                "load-format": "safetensors",
                "model-loader-extra-config": '{"enable_multithread_load": true, "num_threads": 4}',
            },
        ),
        (
            "lmi",
            "runai_streamer,threads=16",
            {
                "load-format": "runai_streamer",
                "model-loader-extra-config": '{"concurrency": 16}',
            },
        ),
        (
            "sglang",
            "safetensors,threads=8",
            {
                "load-format": "safetensors",
                "model-loader-extra-config": '{"enable_multithread_load": true, "num_threads": 8}',
            },
        ),
        ("sglang", "runai_streamer", {"load-format": "runai_streamer"}),
        ("vllm-upstream", "sharded_state", {"load-format": "sharded_state"}),
    ],
)
def test_a_format_is_told_in_the_engine_s_own_options(
    container: str, asked: str, options: dict[str, str]
) -> None:
    found = chosen(container, asked)

    assert errors_in(found.findings) == ()
    assert (found.name, dict(found.options)) == (asked.partition(",")[0], options)


@pytest.mark.parametrize(
    ("container", "variable"),
    [
        ("vllm", "SM_VLLM_MODEL_LOADER_EXTRA_CONFIG"),
        ("lmi", "OPTION_MODEL_LOADER_EXTRA_CONFIG"),
        ("sglang", "SM_SGLANG_MODEL_LOADER_EXTRA_CONFIG"),
    ],
)
def test_every_family_takes_and_renders_threads(container: str, variable: str) -> None:
    plan = plan_for(container)
    plan = replace(plan, engine_options=chosen(container, "safetensors,threads=8").options)
    family = FAMILIES[plan.container.family]

    assert errors_in(family.check(plan)) == ()
    told = json.loads(family.render(plan, NO_FILES).env[variable])
    assert told == {"enable_multithread_load": True, "num_threads": 8}


@pytest.mark.parametrize(
    ("container", "profile", "name"),
    [
        ("vllm-0.33", LARGE, "instanttensor"),
        ("vllm", LARGE, "fastsafetensors"),
        ("vllm", LLAMA_8B, ""),
        ("vllm-cpu", LARGE, ""),
        ("sglang", LARGE, ""),
        ("sglang", replace(LLAMA_8B, weight_bytes=690_000_000_000), "safetensors"),
        ("tgi", LARGE, ""),
    ],
)
def test_auto_takes_what_was_measured_for_such_weights_and_else_leaves_it_to_the_engine(
    container: str, profile: ModelProfile, name: str
) -> None:
    found = chosen(container, "auto", profile=profile)

    [said] = found.findings
    assert found.name == name
    assert said.severity == "note"
    assert said.code == ("load-format-chosen" if name else "load-format-own")
    assert bool(found.options) == bool(name)


@pytest.mark.parametrize(
    ("container", "asked", "said"),
    [
        ("vllm", "fastsafetensor", "no load format 'fastsafetensor'"),
        ("vllm-cpu", "instanttensor", "on cpu has no load format"),
        ("vllm-cpu", "runai_streamer", "on cpu has no load format"),
        ("tgi", "safetensors", "no load format"),
        ("neuron-vllm", "sharded_state", "no load format"),
        ("lmi-trt", "fastsafetensors", "no load format"),
        ("sglang", "sharded_state", "no load format"),
        ("sglang", "instanttensor", "sglang 0.5.17 for sglang on nvidia has no load format"),
        ("vllm", "fastsafetensors,threads=4", "cannot be told with how many threads"),
        ("vllm", "safetensors,threads=0", "'threads=0' is not a setting"),
        ("vllm", "safetensors,workers=4", "'workers=4' is not a setting"),
        ("vllm", "safetensors,threads=4,threads=5", "is not a setting"),
    ],
)
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


@pytest.mark.parametrize(
    "option", ["load-format", "option.load_format", "--Model_Loader_Extra_Config"]
)
def test_the_engine_s_own_option_beside_it_is_a_conflict(option: str) -> None:
    [error] = errors_in(chosen("vllm", "safetensors", engine_options=((option, "{}"),)).findings)

    assert error.code == "options-conflict"


@pytest.mark.parametrize(
    ("container", "asked", "warned"),
    [
        ("vllm", "runai_streamer", True),
        ("vllm", "instanttensor", True),  # its wheel requires it from 0.31 on
        ("vllm-0.33", "instanttensor", False),
        ("vllm", "safetensors", False),
    ],
)
def test_a_package_that_may_be_missing_is_named(container: str, asked: str, warned: bool) -> None:
    codes = [found.code for found in chosen(container, asked).findings]

    assert codes == (["load-format-package"] if warned else [])


def test_no_format_leaves_the_plan_alone() -> None:
    assert choose_load_format(request_for(None), plan_for("vllm")) == ChosenLoadFormat()


BUCKET = "s3://models/llama/"


@pytest.mark.parametrize(
    ("container", "changes", "streams"),
    [
        ("vllm", {}, True),
        ("vllm-upstream", {}, True),
        ("vllm", {"weights": "baked"}, False),
        ("vllm", {"model": "org/name"}, False),
        ("vllm", {"load_format": "fastsafetensors"}, False),
        ("vllm", {"compile": "auto"}, False),  # steps have no network
        ("lmi", {}, False),  # LMI downloads to a disk by itself
        ("sglang", {}, False),
    ],
)
def test_a_model_in_a_bucket_is_streamed_where_it_is_not_baked(
    container: str, changes: dict[str, Any], streams: bool
) -> None:
    fields = {"weights": "mounted", "load_format": "runai_streamer", "model": BUCKET, **changes}
    plan = plan_for(container, weights=fields["weights"])
    traits = FAMILIES[plan.container.family].traits(plan.container)
    plan = replace(plan, container=replace(plan.container, traits=traits))

    found = choose_load_format(request_for(fields.pop("load_format"), **fields), plan)

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
