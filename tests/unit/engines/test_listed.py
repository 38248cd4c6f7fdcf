"""Architectures against what each engine's version has."""

from __future__ import annotations

from dataclasses import replace

from packager.catalog.containers import containers, find_container
from packager.core.findings import Finding
from packager.engines.supported_models import check_listed, check_neuron_type
from tests.support.cases import cases
from tests.support.engine_plans import LLAMA_8B, plan_for


def found_in(
    engine: str, version: str, architecture: str, model_type: str = "", *, state_bytes: int = 0
) -> list[Finding]:
    profile = replace(
        LLAMA_8B, architecture=architecture, model_type=model_type, state_bytes=state_bytes
    )
    plan = replace(
        plan_for(engine),
        profile=profile,
        container=replace(find_container(engine, "nvidia"), engine_version=version),
        containers=containers(),
    )
    return list(check_listed(engine, plan))


@cases("had")
def test_what_the_version_has_is_not_complained_of(
    engine: str, version: str, architecture: str, model_type: str
) -> None:
    assert found_in(engine, version, architecture, model_type) == []


@cases("lacked")
def test_what_the_version_lacks_is_refused_with_the_version_that_has_it(
    engine: str, version: str, architecture: str, model_type: str, said: str
) -> None:
    (finding,) = found_in(engine, version, architecture, model_type)

    assert (finding.severity, finding.code) == ("error", "engine-lacks-architecture")
    assert said in finding.message


def test_a_container_that_has_it_is_proposed() -> None:
    (finding,) = found_in("vllm", "0.10.0", "MiniMaxM2ForCausalLM", "minimax_m2")

    assert "--container-version" in finding.hint


@cases("severities", engine="vllm", model_type="", state_bytes=0, said="")
def test_what_another_code_may_serve_is_warned_of(
    engine: str,
    version: str,
    architecture: str,
    model_type: str,
    state_bytes: int,
    found: list[str],
    said: str,
) -> None:
    findings = found_in(engine, version, architecture, model_type, state_bytes=state_bytes)

    assert [f"{one.severity} {one.code}" for one in findings] == found
    assert all(said in one.message for one in findings)


@cases("neuron")
def test_a_neuron_library_is_asked_for_the_type_that_it_compiles(
    container: str, model_type: str, is_listed: bool
) -> None:
    plan = plan_for(container, profile=replace(LLAMA_8B, model_type=model_type))

    found = list(check_neuron_type(plan))

    assert (found == []) is is_listed
    assert all(one.code == "engine-lacks-architecture" for one in found)
