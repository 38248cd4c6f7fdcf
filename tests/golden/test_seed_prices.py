"""AWS compared 70B with four bits on ml.g5.12xlarge with 16 bits on ml.p4d.24xlarge, in dollars.

Questions of 622 tokens with answers of 250, up to 8 requests at once: the posts of July and
December 2024.  The prices of that year are given as a user gives prices: by `--catalog`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from packager.cli.wiring.builds import services_for
from packager.cli.wiring.settings import Settings
from packager.core.request import BuildRequest
from packager.estimate.performance.ranking import RankedInstance
from packager.pipeline.rank import rank_instances
from tests.golden.models import LLAMA_70B

FOUR_BITS, SIXTEEN_BITS = "ml.g5.12xlarge", "ml.p4d.24xlarge"
CATALOG_OF_2024 = Path(__file__).with_name("catalog-2024.toml")


def ranked(workload: str, catalog: Path | None) -> list[RankedInstance]:
    """Rank 70B as AWQ on the one machine and as it is on the other, the cheapest tokens first."""
    tools = services_for(Settings(catalog_file=catalog))
    tools = replace(tools, find_model=lambda _: LLAMA_70B, peek_model=lambda _: None)
    found: list[RankedInstance] = []
    for name, quantize in ((FOUR_BITS, "awq"), (SIXTEEN_BITS, "none")):
        request = BuildRequest(model="org/m", instance=name, quantize=quantize, workload=workload)
        found += rank_instances(request, tools, [tools.find_instance(name)], goal="cost").options
    assert len(found) == 2
    return sorted(found, key=lambda option: option.prices.output if option.prices else 1e9)


@pytest.mark.parametrize("year", ["2024", "today"])
def test_four_bits_on_the_small_machine_are_cheaper_at_eight_requests(year: str) -> None:
    first, second = ranked("622:250:8", CATALOG_OF_2024 if year == "2024" else None)

    assert first.plan.instance.name == FOUR_BITS
    assert second.plan.instance.name == SIXTEEN_BITS
    assert first.plan.precision == "w4a16"
    assert second.plan.precision == "bf16"
    assert first.prices is not None
    assert second.prices is not None
    ratio = first.prices.output / second.prices.output
    assert (ratio < 0.75) if year == "2024" else (ratio < 1)
    assert first.point.output_tokens_s < second.point.output_tokens_s


def test_the_ranking_shows_why_the_large_machine_wins_when_it_is_full() -> None:
    """It serves many times the requests in time: nobody compared that in 2024."""
    first, second = ranked("622:250", None)

    assert first.plan.instance.name == SIXTEEN_BITS
    assert first.point.concurrency > 10 * second.point.concurrency
    assert first.in_time
    assert second.in_time
    assert second.plan.typical_requests > second.point.concurrency  # time, not memory, limits it
