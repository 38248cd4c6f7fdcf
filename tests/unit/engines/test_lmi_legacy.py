"""Settings of older LMI, of TGI and of SageMaker's SDK, made into those of LMI 28."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from packager.core.findings import Finding
from packager.engines.lmi.check import check_settings
from packager.engines.lmi.legacy import migrate
from packager.engines.lmi.options import lmi_options
from packager.engines.schema import find_schema
from tests.support.cases import cases_of

cases = cases_of(__file__, "lmi")

SCHEMA = find_schema("vllm", "0.26.0")


def migrated(old: Mapping[str, str]) -> tuple[dict[str, str], tuple[Finding, ...]]:
    return migrate(old, SCHEMA, 28)


def words(findings: tuple[Finding, ...]) -> set[str]:
    return {f"{one.severity} {one.code}" for one in findings}


@cases("migrated", new={}, absent=(), found=())
def test_settings_become_those_of_today(
    old: dict[str, str], new: dict[str, Any], absent: list[str], found: list[str]
) -> None:
    settings, changes = migrated(old)

    read = {
        name: json.loads(settings[name]) if isinstance(value, dict) else settings[name]
        for name, value in new.items()
    }
    assert read == new
    assert settings.keys().isdisjoint(absent)
    assert set(found) <= words(changes)
    assert not [one for one in changes if one.severity == "error"]


@cases("without a successor")
def test_what_has_no_successor_is_an_error(old: dict[str, str], code: str) -> None:
    assert f"error {code}" in words(migrated(old)[1])


def test_what_comes_out_needs_no_migration_and_lmi_reads_all_of_it() -> None:
    once, _ = migrated({"option.rolling_batch": "lmi-dist", "option.max_rolling_batch_size": "64"})

    assert migrated(once) == (once, ())
    assert list(check_settings(once, lmi_options(SCHEMA, 28))) == []
