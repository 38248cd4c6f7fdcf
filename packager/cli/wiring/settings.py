"""Settings of a run beside its request."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from packager.cli.plugins.tables import FAMILIES, SINKS
from packager.core.errors import UsageError
from packager.core.events import EventSink, ignore
from packager.core.files.atomic import user_dir
from packager.core.image import Compression, LayerFormat
from packager.core.references import ImageTarget
from packager.core.suggestions import guess
from packager.images.target import parse_target, started_name
from packager.optimize.cache.options import AS_SET_UP, CacheOptions

if TYPE_CHECKING:
    from packager.core.record import BuildRecord
    from packager.core.request import BuildRequest
    from packager.core.user_catalog import UserCatalog
    from packager.optimize.steps.services import OnMiss

EPOCH = "1970-01-01T00:00:00Z"


SbomPolicy = Literal["attached", "required", "none"]


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """Which policy images and models are held to: a file, or the user's own where there is one."""

    is_enforced: bool = False  # by commands that use images; not by those that show them
    file: Path | None = None
    is_skipped: bool = False


_NO_POLICY = PolicyChoice()
CHOSEN_POLICY: ContextVar[PolicyChoice] = ContextVar("policy", default=_NO_POLICY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Choices of adapters that are not part of the request."""

    outputs: tuple[ImageTarget, ...] = ()
    insecure_registries: tuple[str, ...] = ()
    ca_file: Path | None = None  # authorities to trust beside the system's
    record_file: Path | None = None
    catalog_file: Path | None = None  # rows of the user's own
    region: str | None = None  # whose prices a plan shows
    usd_per_hour: float | None = None  # price of the requested instance; None: the catalog's
    runs_elsewhere: bool = False  # steps run on machines of a fleet, not on this one
    headers_only: bool = False  # read no weights: enough for a plan
    read_local: bool = False  # but those on this machine, once: keys need their digests
    cache_dir: Path | None = None  # of artifacts; None: the user's cache directory
    use_cache: bool = True
    cache: CacheOptions = AS_SET_UP
    executor: str = "local"
    trust_roots: tuple[Path, ...] = ()  # that a model's links may lead into
    address: str = ""  # of the cluster that runs steps, for the executor `ray`
    locks: bool = True  # False: the machine that ordered the step holds lock and lease of its key
    log_dir: Path | None = None  # of steps and installers; None: in the state directory
    check_capacity: bool = True  # refuse steps that need more than this machine has
    restart: bool = False  # of steps that an earlier run did not finish
    on_miss: OnMiss = "run"  # what happens to steps whose result is not in the cache
    sparse_base: bool = False  # layouts without the base's layers
    compression: Compression = "none"  # of the request, so that missing libraries are found early
    layer_format: LayerFormat = "plain"  # of the request
    verify: bool = False  # read every layer, whatever is known of it
    sign: str = ""  # private key that signs images: a file, env://NAME, awskms://…
    sbom: SbomPolicy = "attached"  # `required`: a build fails where an output does not keep it
    model_keys: tuple[str, ...] = ()  # public keys, one of which must have signed the model
    model_signature: Path | None = None  # where it is not beside the model
    deny_licences: tuple[str, ...] = ()  # patterns; of models, what they were made from, drafts
    sbom_base: Literal["skip", "read"] = "skip"  # whether the base's layers are read for packages
    policy: PolicyChoice = field(default_factory=CHOSEN_POLICY.get)
    repeat: BuildRecord | None = None  # the record this build must reproduce
    on_event: EventSink = ignore
    on_warning: Callable[[str], None] = ignore
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


def settings_for(request: BuildRequest) -> Settings:
    """Return the settings that a request itself decides."""
    trust_roots: tuple[Path, ...] = ()
    if request.trust_roots:
        from packager.models.trust_roots import resolve_trust_roots

        trust_roots = resolve_trust_roots(request.trust_roots)
    return Settings(
        outputs=tuple(map(parse_output, request.outputs)),
        executor=request.executor or "local",
        trust_roots=trust_roots,
        address=request.address or "",
        compression=request.compression or "none",
        layer_format=request.layer_format or "plain",
    )


def parse_output(text: str) -> ImageTarget:
    """Parse the target of an output, or of an existing image: one of the sinks' schemes."""
    return parse_target(text, SINKS)


def parse_started(text: str, command: str) -> str:
    """Parse an image that a command starts, and return its name in the Docker Engine."""
    return started_name(parse_output(text), command)


def state_dir(environment: Mapping[str, str]) -> Path:
    """Return the directory of records and the digest index."""
    return user_dir("state", environment) / "packager"


def jobs_dir(environment: Mapping[str, str]) -> Path:
    """Return the directory of the store of jobs."""
    return state_dir(environment) / "jobs"


def server_state(environment: Mapping[str, str]) -> Path:
    """Return the directory of a server's own state."""
    return state_dir(environment) / "serve"


def log_dir(settings: Settings) -> Path:
    """Return where logs of steps and installers go."""
    return settings.log_dir or state_dir(settings.environment) / "logs"


def digests_file(settings: Settings) -> Path:
    """Return the path of the digest index, which also stores blobs seen in registries."""
    return state_dir(settings.environment) / "digests.sqlite"


def created_time(environment: Mapping[str, str]) -> str:
    """The image's creation time: SOURCE_DATE_EPOCH, else the epoch, never the clock."""
    moment = stated_time(environment)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ") if moment else EPOCH


def stated_time(environment: Mapping[str, str]) -> datetime | None:
    """Return the creation time that SOURCE_DATE_EPOCH sets; None where it is not set."""
    epoch = environment.get("SOURCE_DATE_EPOCH")
    if not epoch:
        return None
    try:
        return datetime.fromtimestamp(int(epoch), UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(
            f"SOURCE_DATE_EPOCH is {epoch!r}",
            hint="set it to whole seconds since 1970, or unset it",
        ) from error


def user_rows(settings: Settings) -> UserCatalog:
    """Return the user's catalog rows; imports nothing where there is no file."""
    from packager.catalog.user_catalog import user_rows_in

    rows = user_rows_in(settings.catalog_file, settings.environment)
    strangers = {image.family for image in rows.containers} - set(FAMILIES)
    for family in sorted(strangers):
        hint = guess(family, FAMILIES, f"known are {', '.join(FAMILIES)}")
        settings.on_warning(
            f"images of your catalog are of family {family!r}, which no installed package has; "
            f"they are left out ({hint})"
        )
    known = tuple(image for image in rows.containers if image.family not in strangers)
    return replace(rows, containers=known) if strangers else rows


def once(say: Callable[[str], None]) -> Callable[[str], None]:
    """Return a callback that passes each text on once."""
    said: set[str] = set()

    def say_once(text: str) -> None:
        if text not in said:
            said.add(text)
            say(text)

    return say_once
