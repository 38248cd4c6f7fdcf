"""What a run may choose beside its request, and what follows from that alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from packager.adapters.cache_settings import AS_SET_UP, CacheOptions
from packager.adapters.files import user_dir
from packager.build.services import OnMiss
from packager.core.events import EventSink, StepEvent, ignore
from packager.core.image import Compression
from packager.core.own import OwnRows
from packager.core.record import BuildRecord
from packager.errors import UsageError

EPOCH = "1970-01-01T00:00:00Z"


def ignore_warning(text: str) -> None:
    """Receive a warning and do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Choices about doers that are no part of the request."""

    outputs: tuple[str, ...] = ()
    insecure_registries: tuple[str, ...] = ()
    ca_file: Path | None = None  # authorities to trust beside the system's
    record_file: Path | None = None
    catalog_file: Path | None = None  # rows of the user's own
    region: str | None = None  # whose prices a plan shows
    usd_per_hour: float | None = None  # what the asked instance costs; None: as the catalog says
    runs_elsewhere: bool = False  # steps run on machines of a fleet, not on this one
    headers_only: bool = False  # read no weights: enough for a plan
    read_local: bool = False  # but those on this machine, once: keys need their digests
    dry_run: bool = False
    cache_dir: Path | None = None  # of artifacts; None: the user's cache directory
    use_cache: bool = True
    cache: CacheOptions = AS_SET_UP
    executor: str = "local"
    address: str = ""  # of the cluster that runs steps, for the executor `ray`
    locks: bool = True  # False: whoever ordered the step holds lock and lease of its key
    log_dir: Path | None = None  # of steps and installers; None: in the state directory
    check_capacity: bool = True  # refuse steps that need more than this machine has
    restart: bool = False  # of steps that an earlier run did not finish
    on_miss: OnMiss = "run"  # what happens to steps whose result is not in the cache
    sparse_base: bool = False  # layouts without the base's layers
    compression: Compression = "none"  # of the request: what that needs is looked for early
    verify: bool = False  # read every layer, whatever is known of it
    repeat: BuildRecord | None = None  # the record this build must reproduce
    on_event: EventSink = ignore
    on_warning: Callable[[str], None] = ignore_warning
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


def state_dir(environment: Mapping[str, str]) -> Path:
    """Where records and the digest index live."""
    return user_dir("state", environment) / "packager"


def log_dir(settings: Settings) -> Path:
    """Return where logs of steps and installers go."""
    return settings.log_dir or state_dir(settings.environment) / "logs"


def digests_file(settings: Settings) -> Path:
    """What is remembered of files read and of blobs seen in registries."""
    return state_dir(settings.environment) / "digests.sqlite"


def created_time(environment: Mapping[str, str]) -> str:
    """The image's creation time: SOURCE_DATE_EPOCH, else the epoch, never the clock."""
    epoch = environment.get("SOURCE_DATE_EPOCH")
    if not epoch:
        return EPOCH
    try:
        moment = datetime.fromtimestamp(int(epoch), UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(
            f"SOURCE_DATE_EPOCH is {epoch!r}",
            hint="set it to whole seconds since 1970, or unset it",
        ) from error
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def user_rows(settings: Settings) -> OwnRows:
    """What the user added to the catalog; nothing is loaded where nothing was added."""
    from packager.adapters.user_catalog import own_rows

    return own_rows(settings.catalog_file, settings.environment)


def once(say: Callable[[str], None]) -> Callable[[str], None]:
    """Say each thing once: every step of a build meets the same store that does not answer."""
    said: set[str] = set()

    def say_once(text: str) -> None:
        if text not in said:
            said.add(text)
            say(text)

    return say_once


@contextmanager
def working(step: str, detail: str, settings: Settings) -> Iterator[None]:
    """Say that work has begun which may take long, and when it is over."""
    settings.on_event(StepEvent(step=step, detail=detail, state="started"))
    yield
    settings.on_event(StepEvent(step=step, detail=detail, state="finished"))
