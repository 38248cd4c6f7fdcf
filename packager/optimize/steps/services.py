"""Services for running steps; chosen in `wiring`, or by a test."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

from packager.core.errors import CachedFileChanged
from packager.core.events import EventSink, ignore
from packager.core.model import HeadValues, ModelFiles
from packager.core.ports import Executor
from packager.core.recipe import CacheStatus, Step, StepOutcome
from packager.core.references import ModelReference
from packager.models.reference import parse_model_reference

RunStep = Callable[[Step], StepOutcome]

# Policy for steps that miss the cache: run them, leave compiled results out of the image, or refuse
# to build.
OnMiss = Literal["run", "skip-compile", "refuse"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepServices:
    """The functions and adapters that running a step uses, in a build or beside one."""

    parse_model_reference: Callable[[str], ModelReference] = parse_model_reference
    find_model: Callable[[ModelReference], ModelFiles]
    find_draft: Callable[[ModelReference], ModelFiles]
    # Values of a draft head's vocabulary, and of the model how answers end.
    read_head_values: Callable[[ModelFiles, ModelFiles], HeadValues | None] = lambda *_: None
    pin_files: Callable[[ModelFiles], ModelFiles]  # adds digests, where files may be read
    executor: Executor
    run_steps: Callable[[], AbstractContextManager[RunStep]]  # results are there until it ends
    check_cache: Callable[[Step], CacheStatus]
    on_miss: OnMiss = "run"
    on_event: EventSink = ignore  # receives stages
    distrust_cache: Callable[[CachedFileChanged], None] = lambda _: None  # hash files read from it
