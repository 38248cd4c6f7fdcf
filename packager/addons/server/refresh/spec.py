"""The file of `packager draft refresh`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from packager.addons.server.refresh.drift import DriftRules
from packager.addons.server.refresh.gate import GateRules
from packager.addons.server.refresh.served import WatchRules
from packager.core.errors import UsageError
from packager.core.files.user_files import read_table
from packager.core.strict_models import StrictDocument
from packager.core.validation import all_faults

_Words = tuple[Annotated[str, Field(max_length=4096)], ...]
_OF_TRAIN = ("--model", "--method", "--data", "--held-out", "--output", "--from", "--format")
_OF_BUILD = ("--model", "--instance", "--draft", "--output", "--format")
_OF_DEPLOY = ("--name", "--wait", "--format", "--instance")


class CollectRules(StrictDocument):
    """Which traffic makes a turn."""

    conversations: Annotated[int, Field(ge=2)] = 200  # at least, those kept aside among them
    held_out: Annotated[float, Field(gt=0, lt=1)] = 0.2  # share of them that is never trained on


class MeasureRules(StrictDocument):
    """How the heads are compared."""

    prompts: Annotated[int, Field(ge=2)] = 200  # of the held-out conversations, at most
    rounds: Annotated[int, Field(ge=2, le=50)] = 5
    concurrency: Annotated[int, Field(ge=1, le=1024)] = 4  # as it is served; 1 is measured, too
    max_tokens: Annotated[int, Field(ge=2)] = 128  # of an answer
    general: str = ""  # texts of a set that stays the same; "": none
    together: bool = False  # the servers stay and are paused in turns; else each starts anew
    timeout_s: Annotated[float, Field(gt=0)] = 1800.0  # until a server answers
    gpus: bool = False
    env: dict[str, str] = Field(default_factory=dict)  # of the containers


class RefreshSpec(StrictDocument):
    """A deployment whose head is renewed."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,62}$")]  # the project of compose
    model: str
    instance: str = "local"
    traffic: str  # directory of the captured rows, or s3://BUCKET/PREFIX
    image: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._/-]{0,199}$")]  # docker:IMAGE:head-N
    method: Literal["eagle3"] = "eagle3"
    head: str = ""  # that serves at first; "": none, the first one is trained from nothing
    train: _Words = ()  # more options of `packager draft train`
    build: _Words = ()  # of `packager build`
    deploy: _Words = ()  # of `packager deploy compose apply`
    drift: DriftRules | None = None  # a turn begins with it alone; None: with new traffic
    collect: CollectRules = CollectRules()
    measure: MeasureRules = MeasureRules()
    gate: GateRules = GateRules()
    watch: WatchRules = WatchRules()


def read_refresh_file(path: Path) -> RefreshSpec:
    """Read the file; raise `UsageError` with everything that is wrong."""
    table = read_table(path, what="the file of a refresh", hint="write it in TOML")
    try:
        spec = RefreshSpec.model_validate(table)
    except ValidationError as error:
        raise UsageError(
            f"{str(path)!r}: {'; '.join(all_faults(error)[:5])}",
            hint="`packager draft refresh --help` names the fields",
        ) from None
    for name, words, own in (
        ("train", spec.train, _OF_TRAIN),
        ("build", spec.build, _OF_BUILD),
        ("deploy", spec.deploy, _OF_DEPLOY),
    ):
        taken = next((word for word in words if word.partition("=")[0] in own), None)
        if taken is not None:
            raise UsageError(
                f"{str(path)!r}: {name} has {taken}, which the refresh decides",
                hint="leave it out: fields of the file say it",
            )
    return spec
