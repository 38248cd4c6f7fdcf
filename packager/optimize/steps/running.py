"""Running steps that are in no recipe, and running again where the cache gave something wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from packager.core.errors import CachedFileChanged, LostFromCache
from packager.core.recipe import Step, StepOutcome
from packager.core.tool import ToolFacts, build_for
from packager.optimize.steps.services import RunStep, StepServices

Done = TypeVar("Done")


def with_cache_healed(services: StepServices, work: Callable[[], Done]) -> Done:
    """Run `work`; once more where the cache returned corrupt bytes or lost a file.

    The second time every file out of the cache is hashed before it is used: broken entries are set
    aside, and made again where steps may run. Images named by the first attempt are safe: their
    bytes were compared.
    """
    try:
        return work()
    except CachedFileChanged as error:
        services.distrust_cache(error)
    except LostFromCache:
        pass  # now a miss, handled by the miss policy
    return work()


def run_with_tool(
    describe: Callable[[ToolFacts], Step],
    name: str,
    services: StepServices,
    run_step: RunStep,
    *,
    gpus: int = 0,
) -> tuple[Step, StepOutcome]:
    """Run a step outside the recipe; install its tool where the step runs.

    As in `with_tools_installed`, the tool is looked at again when it was installed.
    """
    build = build_for(gpus)
    step = describe(services.executor.find_tool(name, build))
    if services.on_miss != "refuse" and services.check_cache(step).state != "hit":
        services.executor.admit(step)
        services.executor.prepare(name, build)
        step = describe(services.executor.find_tool(name, build))
    return step, run_step(step)
