"""Faster ways of loading that a plan proposes, and where it stays silent."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from packager.core.versions import version_key
from packager.engines.load_formats import load_formats, suggest_load_format
from packager.engines.schema import find_schema
from tests.support.engine_plans import LLAMA_8B, plan_for

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

    assert hints == (
        [f"try --engine-option load-format={name}; measure it on your own disk"] if name else []
    )


def test_small_weights_and_a_format_that_is_asked_for_need_no_proposal() -> None:
    asked = (("option.load_format", "auto"),)

    assert list(suggest_load_format(plan_for("vllm"))) == []
    assert list(suggest_load_format(plan_for("vllm", profile=LARGE, engine_options=asked))) == []


def test_every_row_has_a_measurement_with_source_and_date() -> None:
    for row in load_formats():
        assert row.measured
        assert re.search(r"vllm#\d+", row.source)
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", row.date)
        assert version_key(row.since) is not None
        assert "load-format" in find_schema(row.engine, row.since).options
