"""LMI's file and environment, and its settings, beside corpus/plans_lmi.toml."""

from __future__ import annotations

import pytest

from packager.core.artifact import Artifacts
from packager.core.errors import PlanRejected
from packager.core.findings import Finding, errors_in
from packager.engines.lmi.check import check_settings
from packager.engines.lmi.family import LmiFamily
from packager.engines.lmi.options import lmi_options
from packager.engines.lmi.render import settings
from packager.engines.vllm.options import schema_of
from tests.support.cases import cases
from tests.support.engine_rows import properties_of
from tests.support.headers import LLAMA_3_8B, TINY, model_of, plan_of

PLAN = plan_of(model_of(LLAMA_3_8B), "g5.12xlarge", family="lmi", served_name="llama")
OPTIONS = lmi_options(schema_of(PLAN), 28)


def check(**changed: str) -> list[tuple[str, str]]:
    meant = settings(PLAN) | {key.replace("__", "."): value for key, value in changed.items()}
    findings: list[Finding] = list(check_settings(meant, OPTIONS))
    return [(finding.severity, finding.code) for finding in findings]


def test_file_and_environment_say_the_same() -> None:
    config = LmiFamily().render(PLAN, Artifacts(model=()))
    server_reads = {  # ModelInfo.loadServingProperties lowers the name, but for entryPoint
        f"option.{'entryPoint' if name == 'ENTRYPOINT' else name.lower()}": value
        for name, value in (
            (key.removeprefix("OPTION_"), value)
            for key, value in config.env.items()
            if key.startswith("OPTION_")
        )
    }

    assert {"engine": "Python", **server_reads} == properties_of(config)


def test_what_we_render_lmi_reads() -> None:
    assert check() == []


@cases("what_lmi_drops_or_refuses_is_an_error")
def test_what_lmi_drops_or_refuses_is_an_error(key: str, value: str, code: str) -> None:
    assert check(**{key: value}) == [("error", code)]


def test_a_name_that_lmi_reads_as_a_switch_rejects_the_plan() -> None:
    with pytest.raises(PlanRejected) as error:
        plan_of(model_of(TINY), "g5.xlarge", family="lmi", served_name="true")

    assert [finding.code for finding in errors_in(error.value.findings)] == ["value-refused"]
