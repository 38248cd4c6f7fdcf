"""Runs steps, or takes their results from the artifact cache.

A fault of the cache never fails a step: it is a notice, and the step runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from packager.core.errors import CachedFileChanged, LostFromCache, Unavailable
from packager.core.events import EventSink, StageEstimate, StepEvent, ignore
from packager.core.model import ModelFile
from packager.core.ports import Executor
from packager.core.recipe import CacheStatus, Step, StepOutcome, StepResult
from packager.core.tool import build_for
from packager.optimize.steps.failures import StepBroken, StepRejected
from packager.optimize.steps.protocol import check_inputs
from packager.optimize.steps.results import ResultChecks, read_result
from packager.optimize.steps.workspace import Workspace

if TYPE_CHECKING:
    from artifact_cache.cache import ArtifactCache
    from artifact_cache.explain import Explanation
    from artifact_cache.key import KeyDocument
    from artifact_cache.matching import Match
    from artifact_cache.results import CacheResult


Remember = Callable[[Step, "Explanation"], None]


def published_lost(step: str, reason: str) -> Unavailable:
    """Return an error: a result was published by another machine, and is not found in the shared

    stores.
    """
    return Unavailable(
        f"the result of step {step!r} was published, and cannot be taken: {reason}",
        hint="run the same command again; `packager cache check` asks the stores",
        code="PublishedLost",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """How a build has its steps done."""

    on_event: EventSink = ignore
    warn: Callable[[str], None] = ignore
    checks: ResultChecks = field(default_factory=lambda: MappingProxyType({}))
    accept_larger: bool = False  # artifacts of a larger shape serve, too
    retry_failed: bool = False
    may_run: Callable[[Step], bool] = lambda _: True
    remember: Remember = ignore
    label: Callable[[Step], Mapping[str, str]] = lambda _: {}
    locks: bool = True  # False: another machine holds lock and lease of the key
    stages: Callable[[Step], tuple[StageEstimate, ...]] = lambda _: ()


class StepRunner:
    """One build's way of having steps done."""

    def __init__(
        self,
        executor: Executor,
        open_cache: Callable[[], ArtifactCache | None],
        workspace: Workspace,
        settings: RunSettings,
    ) -> None:
        self._executor = executor
        self._open_cache = open_cache
        self._workspace = workspace
        self._settings = settings

    def run(self, step: Step) -> StepOutcome:
        """Return the step's files, from the cache or from the tool.

        Raises `LostFromCache` for a step that may not run and whose result cannot be taken,
        and `CachedFileChanged` where the cache gave what cannot have been published.
        """
        self._settings.on_event(
            StepEvent(
                step=step.name,
                state="started",
                detail=step.tool,
                stages=self._settings.stages(step),
            )
        )
        outcome = self._run(step)
        detail = f"taken from the cache, {outcome.key[:12]}" if outcome.reused else step.tool
        self._settings.on_event(StepEvent(step=step.name, state="finished", detail=detail))
        return outcome

    def _run(self, step: Step) -> StepOutcome:
        into = self._workspace.directory(step.name)
        results: list[StepResult] = []

        def work(place: Path) -> None:
            result = self._executor.run(step, place)
            if result.published:  # the node has checked it
                from artifact_cache.errors import PublishedElsewhere

                results.append(result)
                raise PublishedElsewhere
            check_inputs(step)  # it read them by their names
            _check_versions(step, result)
            read_result(
                step, place, {}, self._settings.checks
            )  # broken results must not be published
            results.append(result)

        # Opened by the first step: most builds have none, and opening takes time.
        cache = self._open_cache()
        if not self._settings.may_run(step):
            return self._taken(step, into, cache)
        if step.key is None or cache is None:
            work(into)
            return self._outcome(step, into, results, key="", digests={})
        return self._cached(step, step.key, into, cache, work, results)

    def _taken(self, step: Step, into: Path, cache: ArtifactCache | None) -> StepOutcome:
        from artifact_cache.errors import NotTaken

        if step.key is None or cache is None:
            raise LostFromCache(step.name, "there is none, or the result cannot be cached")
        try:
            found = cache.take(step.key, into, accept_larger=self._settings.accept_larger)
        except NotTaken as error:
            _note(step, cache, self._settings.remember, hit=False)
            raise LostFromCache(step.name, error.message) from error
        return self._finished(step, cache, found, [])

    def _cached(
        self,
        step: Step,
        key: KeyDocument,
        into: Path,
        cache: ArtifactCache,
        work: Callable[[Path], None],
        results: list[StepResult],
    ) -> StepOutcome:
        from artifact_cache.errors import NotTaken, Rejected

        def build(place: Path) -> None:
            try:
                work(place)
            except StepRejected as error:
                raise Rejected(error.message, log=error.log, hint=error.hint) from error

        try:
            found = cache.get_or_build(
                key,
                build,
                into,
                labels={**step.labels, **self._settings.label(step)},
                accept_larger=self._settings.accept_larger,
                retry_failed=self._settings.retry_failed,
                locks=self._settings.locks,
            )
        except NotTaken as error:
            raise published_lost(step.name, error.message) from error
        except Rejected as error:
            _note(step, cache, self._settings.remember, hit=False)
            raise StepRejected(error.message, hint=error.hint, log=error.log) from error
        except Exception:
            _note(step, cache, self._settings.remember, hit=False)
            raise
        return self._finished(step, cache, found, results)

    def _finished(
        self,
        step: Step,
        cache: ArtifactCache,
        found: CacheResult,
        results: list[StepResult],
    ) -> StepOutcome:
        _note(step, cache, self._settings.remember, hit=found.hit)
        for notice in found.notices:
            if notice.code != "waiting":  # reported when the wait began
                self._settings.warn(f"cache: {notice.message}")
        digests = {one.path: one.sha256 for one in found.entry.outputs} if found.entry else {}
        try:
            outcome = self._outcome(step, found.path, results, key=found.key, digests=digests)
        except StepBroken:
            if found.hit:
                _compare(found.path, digests)  # it was read like this before it was published
            raise
        return replace(outcome, effective=effective_values(found.match))

    def _outcome(
        self,
        step: Step,
        place: Path,
        results: list[StepResult],
        *,
        key: str,
        digests: dict[str, str],
    ) -> StepOutcome:
        for result in results:
            for notice in result.notices:
                self._settings.warn(notice)
        files = read_result(step, place, digests, self._settings.checks)
        return StepOutcome(
            files=_with_origins(files, step, key, digests),
            reused=not results,
            key=key,
            result=results[-1] if results else StepResult(),
        )


def _with_origins(
    files: tuple[ModelFile, ...], step: Step, key: str, digests: Mapping[str, str]
) -> tuple[ModelFile, ...]:
    """Return the files with the cache address where other machines find them."""
    kind = step.key.kind if step.key else ""
    return tuple(
        replace(file, origin=f"cache://{kind}/{key}/{file.path}") if file.path in digests else file
        for file in files
    )


def _compare(place: Path, digests: Mapping[str, str]) -> None:
    """Raise `CachedFileChanged` for the first file that has not its digest."""
    from artifact_cache.files import sha256_of

    for name, sha256 in digests.items():
        try:
            same = sha256_of(place / name) == sha256
        except OSError as error:
            raise CachedFileChanged(name, "cannot be read") from error
        if not same:
            raise CachedFileChanged(name)


def effective_values(match: Match | None) -> dict[str, Any]:
    """Return the settings of an artifact that is larger than requested, by JSON pointer."""
    return {one.pointer: one.found for one in match.effective} if match else {}


def check_cache(
    step: Step,
    cache: ArtifactCache | None,
    executor: Executor,
    *,
    accept_larger: bool = False,
    remember: Remember | None = None,
) -> CacheStatus:
    """Return a step's cache status without reading or running anything."""
    installs = not executor.find_tool(step.tool, build_for(step.gpus)).installed
    if cache is None or step.key is None:
        reason = (
            "there is no cache"
            if cache is None
            else "it runs in the base image, which is not at hand"
            if step.places and step.image is None
            else "the digest of its inputs is only known when the weights have been read"
            if any(not file.sha256 for given in step.inputs.values() for file in given.files)
            else "its result cannot be cached"
        )
        return CacheStatus(
            step=step.name,
            tool=step.tool,
            state="unknown",
            reason=reason,
            seconds=step.needs.seconds,
            installs=installs,
        )
    from artifact_cache.key import key_of

    found, match = cache.find(step.key), None
    if found is None and accept_larger:
        match = cache.find_larger(step.key)
        found = match.entry if match else None
    if remember is not None:
        _note(step, cache, remember, hit=found is not None)
    if found is None:
        return CacheStatus(
            step=step.name,
            tool=step.tool,
            state="miss",
            key=key_of(step.key),
            seconds=step.needs.seconds,
            installs=installs,
            differs=_differences(step.key, cache),
            inputs=key_inputs(step),
        )
    return CacheStatus(
        step=step.name,
        tool=step.tool,
        state="hit",
        key=found.key,
        seconds=found.build_s,
        effective=effective_values(match),
        inputs=key_inputs(step),
    )


def key_inputs(step: Step) -> dict[str, tuple[str, ...]]:
    """Return the inputs that decide whether a step's artifact can be used, by group."""
    from artifact_cache.key import plain

    assert step.key is not None
    groups = plain(step.key)
    return {
        name: tuple(field for field, value in group.items() if value not in (None, [], {}))
        if isinstance(group, dict)
        else ()
        for name, group in groups.items()
        if group is not None and name not in ("schema", "kind")
    }


def _note(step: Step, cache: ArtifactCache, remember: Remember, *, hit: bool) -> None:
    """Record the look-up for `packager cache explain`: a miss that was built is a hit later."""
    from artifact_cache.errors import CacheError

    assert step.key is not None
    with suppress(CacheError, OSError):
        remember(step, replace(cache.explain(step.key), hit=hit))


def _differences(key: KeyDocument, cache: ArtifactCache) -> tuple[str, ...]:
    """Return the JSON pointers in which the nearest entry differs."""
    from artifact_cache.errors import CacheError

    try:
        nearest = cache.explain(key, limit=1).nearest
    except (CacheError, OSError):
        return ()
    return tuple(one.pointer for one in nearest[0].differences) if nearest else ()


def _check_versions(step: Step, result: StepResult) -> None:
    """Refuse a result whose tool versions differ from its key."""
    toolchain = getattr(step.key, "toolchain", None)
    stated = {one.name: one.version for one in toolchain.packages} if toolchain else {}
    if toolchain and "python" in toolchain.environment:
        stated["python"] = toolchain.environment["python"]
    for name, version in stated.items():
        used = result.versions.get(name, version)
        if used != version and not (name == "python" and used.startswith(f"{version}.")):
            raise StepBroken(
                f"step {step.name!r} used {name} {used}, its key says {version}",
                hint=f"recreate the environment: `packager tools rm {step.tool}`",
            )
