"""What becomes of a build whose model lost quality."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from packager.core.errors import QualityRejected
from packager.core.quality import Evaluation, limits_of
from packager.core.recipe import Recipe
from packager.core.request import BuildRequest
from packager.pipeline import quality
from packager.pipeline.record import repeatable_request
from tests.support.report_values import quality_report

ASKED = BuildRequest(model="m", instance="local", quantize="fp8", evaluate="default")


def planned(request: BuildRequest) -> Any:
    facts = SimpleNamespace(request=request, model=None, evaluation=(), gpus=0, threads=1)
    plan = SimpleNamespace(
        evaluation=Evaluation(), limits=limits_of(request), step_gpus=None, step_threads=None
    )
    return SimpleNamespace(facts=facts, plan=plan, recipe=Recipe())


def test_a_ruined_model_ends_a_build_that_gave_no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    ruined = quality_report(kld_mean=1.88, top1_agreement=0.0)
    outcome = SimpleNamespace(files=())
    monkeypatch.setattr(quality, "run_evaluation", lambda *_, **__: (None, outcome))
    services: Any = SimpleNamespace(read_quality=lambda _: ruined)
    finished: Any = SimpleNamespace(planned=planned(ASKED), artifacts=SimpleNamespace(model=()))

    with pytest.raises(QualityRejected) as rejected:
        quality.evaluated(finished, services, lambda _: outcome)  # type: ignore[arg-type, return-value]

    assert rejected.value.exit_code == 7
    assert rejected.value.message == (
        "quantizing cost more quality than allowed: mean KLD 1.88 is over 1 (default); "
        "same-top-1 0 % is under 50 % (default)"
    )
    assert rejected.value.figures == ruined.model_dump()


@pytest.mark.parametrize("measured", [True, False])
def test_a_record_states_the_limits_that_its_model_kept(measured: bool) -> None:
    found = quality_report() if measured else None
    assembled: Any = SimpleNamespace(planned=planned(ASKED), quality=found)

    recorded = repeatable_request(assembled)

    assert (recorded.max_kld, recorded.min_top1) == ((1.0, 0.5) if measured else (None, None))
