"""The verdicts of LMI's own classes: djl-serving's CI configurations, and hand-picked ones.

`data/lmi_ci.jsonl` has what `scripts/lmi-verdicts` recorded of the configurations in djl-serving's
tests/integration/llm/prepare.py, by the branch of each release: 13 (0.31.0-dlc), 14 (0.32.0-dlc),
15 (0.33.0-dlc), 16 (0.34.0-dlc), 17 (0.35.0-dlc), 18, 19, 25 and 27 (0.36.0-lmiN-dlc), on
2026-11-22.  `accepted`, `dropped` and `refused` list releases, `keys` what some release drops.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache

from packager.catalog.containers import find_container
from packager.core.findings import Finding
from packager.engines.lmi.check import check_settings
from packager.engines.lmi.options import LmiOptions, lmi_options
from packager.engines.schema import find_schema
from tests.support.cases import cases_of
from tests.support.places import DATA

cases = cases_of(__file__, "lmi")


RECORDED = DATA / "engines/lmi_ci.jsonl"
VERDICTS = ("accepted", "dropped", "refused")


@cache
def release_options(release: int) -> tuple[str, LmiOptions]:
    version = find_container("lmi", "nvidia", str(release)).engine_version
    return version, lmi_options(find_schema("vllm", version), release)


def findings(settings: Mapping[str, str], release: int) -> list[Finding]:
    version, options = release_options(release)
    return list(check_settings(settings, options, vllm_version=version))


def verdict(settings: Mapping[str, str], release: int) -> str:
    errors = [one.code for one in findings(settings, release) if one.severity == "error"]
    if not errors:
        return "accepted"
    return "dropped" if set(errors) == {"key-dropped"} else "refused"


def recorded() -> Iterator[tuple[dict[str, str], int, str]]:
    for line in RECORDED.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        settings = row["settings"]
        if settings.get("option.tensor_parallel_degree") == "max":
            del settings["option.tensor_parallel_degree"]  # the server makes a number of it
        for said in VERDICTS:
            for release in row.get(said, ()):
                yield settings, release, said


def test_djl_servings_own_configurations_get_the_verdicts_of_its_own_classes() -> None:
    differing = [
        (release, said, found, settings)
        for settings, release, said in recorded()
        if (found := verdict(settings, release)) != said
    ]

    assert differing == []


@cases("releases")
def test_a_release_reads_drops_or_refuses_as_its_own_classes_do(
    release: int, settings: dict[str, str], said: str
) -> None:
    assert verdict(settings, release) == said


@cases("unchecked")
def test_a_configuration_that_vllm_does_not_serve_is_said_to_be_unchecked(
    release: int, settings: dict[str, str], message: str
) -> None:
    (found,) = findings(settings | {"option.speculative_draft_model": "/m"}, release)

    assert (found.severity, found.code, found.message) == ("warning", "options-unproven", message)


@cases("lmi_14_and_15_borrow_no_fields_of_vllm_0_10_2")
def test_lmi_14_and_15_borrow_no_fields_of_vllm_0_10_2(
    release: int, dropped: int, accepted: int
) -> None:
    """The numbers of fields that the borrowed table took or refused wrongly."""
    version = find_container("lmi", "nvidia", str(release)).engine_version
    schema, borrowed = find_schema("vllm", version), find_schema("vllm", "0.10.2")
    handed_on = lmi_options(schema, release).pass_through

    assert schema.proven
    assert len(borrowed.fields - schema.fields) == dropped
    assert len(schema.fields - borrowed.fields) == accepted
    assert not {f"option.{name}" for name in borrowed.fields - schema.fields} & handed_on
