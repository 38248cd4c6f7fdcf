"""One model on every instance of the catalog, with the model found once."""

from __future__ import annotations

from dataclasses import replace

from packager.catalog.instances import find_instance, instances
from packager.cli.wiring.builds import services_for
from packager.cli.wiring.settings import Settings
from packager.core.recipe import CacheStatus, Step
from packager.core.request import BuildRequest
from packager.pipeline.rank import menu, rank_instances
from tests.support.cases import cases
from tests.support.headers import LLAMA_3_8B, LLAMA_3_70B, model_of
from tests.unit.pipeline.test_rank import LLAMA_70B, Counted, names_of, ranked


def test_the_model_is_found_once_for_all_instances() -> None:
    find_model = Counted(LLAMA_70B)
    tools = replace(services_for(Settings()), find_model=find_model)

    rank_instances(BuildRequest(model="org/m", instance="all"), tools, instances())
    assert find_model.calls == 1


def test_a_ranking_does_not_ask_the_cache() -> None:
    """Offers are made for every plan, and a shared store may be far away."""
    asked: list[Step] = []

    def check_cache(step: Step) -> CacheStatus:
        asked.append(step)
        return CacheStatus(step=step.name, tool=step.tool, state="unknown")

    tools = replace(
        services_for(Settings()),
        find_model=Counted(LLAMA_70B),
        check_cache=check_cache,
    )
    small = find_instance("ml.g5.12xlarge")

    ranking = rank_instances(BuildRequest(model="org/m", instance="all"), tools, (small,))
    assert ranking.options[0].plan.quantization
    assert asked == []


def test_every_instance_is_ranked_or_left_out_with_a_reason() -> None:
    ranking = ranked(model_of(LLAMA_3_8B))

    left_out = [skipped.instance for skipped in ranking.skipped]
    assert sorted([*names_of(ranking), *left_out]) == sorted(known.name for known in instances())
    assert all(skipped.reason for skipped in ranking.skipped)


@cases("methods_that_do_not_work_for_an_architecture_are_not_offered")
def test_methods_that_do_not_work_for_an_architecture_are_not_offered(
    architecture: str, offered: list[str]
) -> None:
    ranking = ranked(model_of(LLAMA_3_70B | {"architectures": [architecture]}), "ml.g5.12xlarge")

    assert [option.candidate.options[:14] for option in ranking.options] == offered


def test_a_large_model_fits_small_instances_only_quantized() -> None:
    ranking = ranked(LLAMA_70B, "ml.g5.12xlarge", "ml.g5.xlarge", "ml.p5.48xlarge")

    (small,) = [
        option for option in ranking.options if option.plan.instance.name == "ml.g5.12xlarge"
    ]
    assert small.candidate.options.startswith(("--quantize awq", "--quantize fp8"))
    assert [skipped.instance for skipped in ranking.skipped] == ["ml.g5.xlarge"]
    assert ranking.skipped[0].reason.startswith("even with --quantize awq")
    assert ranking.skipped[0].reason.endswith("and has 19.8 GiB usable")


def test_devices_without_figures_are_left_out_though_the_model_fits() -> None:
    ranking = ranked(LLAMA_70B, "ml.g7.24xlarge")

    assert ranking.skipped[0].reason == "it fits, but figures of its devices are not published"


def test_a_menu_has_the_best_configuration_for_every_goal() -> None:
    tools = replace(services_for(Settings()), find_model=Counted(LLAMA_70B))
    request = BuildRequest(model="org/m", instance="ml.p5.48xlarge")
    instance = find_instance("ml.p5.48xlarge")

    found = menu(request, tools, instance)
    assert [goal for goal, _ in found] == ["cost", "latency", "throughput"]
