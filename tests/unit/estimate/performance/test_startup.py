"""Predicted cold starts: their phases, what they rest on, and that deployments wait by them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from packager.addons.deploy.sagemaker.times import download_s
from packager.core.errors import PlanRejected
from packager.core.reports.page import report_html
from packager.core.reports.report import Report
from packager.core.startup import PHASES, PhaseName, Spread, StartedVariant
from packager.core.units import MIB
from packager.estimate.performance.report_startup import startup_section
from packager.estimate.performance.startup import (
    StartedImage,
    bandwidth_of,
    image_of_plan,
    predict_startup,
    s3_bytes_s,
    slowest_start_s,
)
from packager.estimate.performance.startup_advice import ImageTraits, advise
from packager.images.pull_hints import (
    DISKS,
    Disk,
    PulledLayer,
    make_hints,
    pull_parts,
    pulled_bytes_s,
)
from packager.pipeline.planning.health import start_period_s
from tests.golden.cases import CASES
from tests.support.cases import cases_of
from tests.support.deployments import deployment
from tests.support.engine_plans import plan_for
from tests.support.known import known
from tests.support.report_values import lines_of

cases = cases_of(__file__)

GP3 = Disk(name="gp3", bytes_s=125 * MIB)
FAST = Disk(name="fast", bytes_s=20e9)


def layers(*sizes: int) -> tuple[PulledLayer, ...]:
    return tuple(
        PulledLayer(digest=f"sha256:{number}", size=size, packed="none")
        for number, size in enumerate(sizes)
    )


def image(**changes: Any) -> StartedImage:
    given: dict[str, Any] = {
        "kind": "nvidia",
        "engine": "vllm",
        "layers": layers(10_000_000_000),
        "weights_bytes": 8_000_000_000,
        "stored_bytes": 8_000_000_000,
    }
    return StartedImage(**(given | changes))


def phases(found: StartedImage, disk: Disk = GP3, **more: Any) -> dict[PhaseName, float | None]:
    [node] = predict_startup(found, disks=[disk], **more).nodes[:1]
    return {one.name: one.seconds for one in node.phases}


def test_every_phase_is_predicted_in_its_order() -> None:
    assert tuple(phases(image())) == PHASES


def test_pull_and_unpack_are_together_what_the_hints_of_pulls_say() -> None:
    some = layers(4_000_000_000, 1_000_000_000, 20_000_000)

    for disk in (*DISKS, FAST):
        parts = pull_parts(some, 1.25e9, disk)
        [time] = make_hints(some, 1.25e9, [disk]).times
        assert parts.down_s + parts.unpack_s == pytest.approx(time.by_default)
        assert parts.unpack_s >= 0


def test_weights_wait_for_the_slower_of_the_disk_and_the_engine() -> None:
    assert phases(image(), GP3)["weights"] == pytest.approx(8e9 / (125 * MIB), abs=0.01)
    assert phases(image(), FAST)["weights"] == pytest.approx(4.0)  # 2 GB/s of vLLM on GPUs


def test_what_is_mounted_comes_from_a_bucket_first() -> None:
    mounted = phases(image(mounted=True, layers=layers(2_000_000_000)), FAST)

    assert mounted["weights"] == pytest.approx(8e9 / 60e6 + 4.0, abs=0.01)


def test_what_is_compiled_ahead_of_time_is_not_compiled_again() -> None:
    compiles = phases(image())["compile"]
    has_compiled = phases(image(compiler="vllm_cache"))["compile"]
    eager = phases(image(eager=True))["compile"]

    assert compiles and has_compiled and eager
    assert eager < has_compiled < compiles


def test_nobody_knows_how_long_graphs_for_neuroncores_take() -> None:
    found = predict_startup(image(kind="neuron", engine="vllm"), disks=[GP3])

    [node] = found.nodes
    assert phases(image(kind="neuron"))["compile"] is None
    assert node.seconds == pytest.approx(sum(one.seconds or 0 for one in node.phases), abs=0.05)
    assert "minutes to hours" in " ".join(found.notes)


def test_a_base_that_nobody_looked_at_is_guessed_and_said() -> None:
    plan = plan_for("vllm")
    guessed = predict_startup(image_of_plan(plan), disks=[GP3])
    known = predict_startup(image_of_plan(plan, layers(9_000_000_000)), disks=[GP3])

    assert guessed.is_base_guessed
    assert guessed.pull_bytes == 6_000_000_000 + guessed.weights_bytes
    assert [one.basis for one in guessed.nodes[0].phases[:2]] == ["guess", "guess"]
    assert "nobody looked how large the base is" in "\n".join(lines_of(startup_section(guessed)))
    assert (known.is_base_guessed, known.pull_bytes) == (False, 9_000_000_000)
    assert [one.basis for one in known.nodes[0].phases[:2]] == ["source", "source"]


@cases("eager")
def test_an_engine_is_eager_where_it_is_told_or_on_processors(
    container: str, options: tuple[tuple[str, str], ...], compiler: str, eager: bool
) -> None:
    plan = plan_for(container, engine_options=options, compiler=compiler)

    assert image_of_plan(plan).eager is eager


def test_the_rate_of_weights_is_a_guess_where_the_other_phases_were_measured() -> None:
    [start] = predict_startup(image(kind="cpu", engine="vllm"), disks=[FAST]).nodes

    basis = {one.name: one.basis for one in start.phases}
    told = {name: basis[name] for name in ("import", "compile", "weights")}
    assert told == {"import": "measured", "compile": "measured", "weights": "guess"}


def test_what_was_measured_takes_the_place_of_what_is_no_matter_of_the_node() -> None:
    medians: dict[PhaseName, float] = {"import": 12.5, "weights": 0.5, "compile": 3.0}
    spreads = {name: Spread(median=seconds) for name, seconds in medians.items()}

    found = predict_startup(
        image(), disks=[GP3], measured=[StartedVariant(name="m", phases=spreads)]
    )

    gp3, as_measured = found.nodes
    assert {one.name: one.seconds for one in as_measured.phases} == medians
    by_name = {one.name: one for one in gp3.phases}
    assert (by_name["import"].seconds, by_name["import"].basis) == (12.5, "measured")
    assert by_name["compile"].seconds == 3.0
    assert by_name["weights"].seconds == pytest.approx(61.04)  # of this disk still


def test_deployments_wait_by_the_same_figures() -> None:
    plan = plan_for("vllm")
    found = predict_startup(image_of_plan(plan))
    mounted = deployment()
    mounted = replace(
        mounted, model_bytes=60_000_000_000, weights=replace(mounted.weights, kind="mounted")
    )

    assert found.allowed_s == start_period_s(plan) == slowest_start_s(plan.profile.weight_bytes)
    for node in found.nodes:  # platforms wait at least as long as is predicted
        inside = [one.seconds or 0 for one in node.phases if one.name not in ("pull", "unpack")]
        assert sum(inside) <= found.allowed_s
    assert download_s(mounted) == 1500  # 1.5 times 1,000 s
    assert s3_bytes_s() == 60e6
    # KServe: 140 GB in 4,585 s.
    assert 140e9 / pulled_bytes_s() == pytest.approx(4585, rel=0.02)


def test_an_instance_gets_what_its_network_always_has() -> None:
    plan = plan_for("vllm")

    assert bandwidth_of(replace(plan.instance, network_gbps=25)) == 25e9 / 8
    assert bandwidth_of(plan.instance) == 1.25e9


@cases("longest")
def test_the_longest_phase_is_what_to_change(
    longest: PhaseName, traits: dict[str, Any], words: str
) -> None:
    told = {**dict.fromkeys(PHASES, 1.0), longest: 30.0}

    found = known(advise(told, ImageTraits(**{"kind": "nvidia", "engine": "vllm"} | traits)))

    assert (found.phase, found.seconds, found.share) == (longest, 30.0, round(30 / 37, 3))
    assert words in found.change


def test_nothing_is_changed_where_nothing_is_known() -> None:
    assert advise({}, ImageTraits(kind="cpu", engine="vllm")) is None


def test_text_and_page_show_guesses_and_the_same_figures() -> None:
    found = predict_startup(image(), disks=[GP3])

    lines = "\n".join(lines_of(startup_section(found)))
    page = report_html(Report(title="t", sections=(startup_section(found),)))

    assert "of a node that has nothing: 10.0 GB at 1.2 GB/s" in lines
    assert "~27 s" in lines  # container and import
    assert all(f'<td class="n">{cell}</td>' in page for cell in ("~27 s", "61 s"))
    assert "<dt>Weights</dt>" in page
    assert re.search(r"~[\d.]+ min</td></tr>", re.sub(r"\s+<", "<", page))


def test_every_kind_of_model_and_family_has_a_prediction_that_platforms_wait_for() -> None:
    """Dense, fused, mixtures, MLA, hybrid: every golden plan, on every disk."""
    planned = 0
    for case in CASES:
        try:
            plan = case.plan
        except PlanRejected:
            continue
        planned += 1
        found = predict_startup(image_of_plan(plan), bandwidth_bytes_s=bandwidth_of(plan.instance))
        assert found.weights_bytes > 0, case.id
        for node in found.nodes:
            told = {one.name: one.seconds for one in node.phases}
            assert [*told] == [*PHASES], case.id
            assert all(seconds is None or seconds >= 0 for seconds in told.values()), case.id
            inside = sum(told[name] or 0.0 for name in told if name not in ("pull", "unpack"))
            # What is mounted is brought by the platform, before it waits for the server.
            assert inside <= found.allowed_s or plan.weights == "mounted", case.id
        assert lines_of(startup_section(found))
    assert planned > 40
