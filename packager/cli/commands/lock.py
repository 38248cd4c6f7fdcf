"""`packager lock`, and what `--locked` does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from packager.cli.options import choose_target, make_request, open_project
from packager.cli.plugins.tables import BASES
from packager.cli.progress import progress_options, shown_progress
from packager.cli.project import Project
from packager.cli.shared_options import catalog_option, format_option, registry_options
from packager.cli.terminal import note, print_json_text, print_value, warn
from packager.cli.wiring.builds import parse_model_reference, services_for
from packager.cli.wiring.settings import Settings, settings_for
from packager.core.documents import NotStrict, parse_model, shorten
from packager.core.errors import NotFound, NotReproduced, UsageError
from packager.core.files.atomic import explain_disk_errors, write_atomically
from packager.core.files.user_files import read_user_file
from packager.core.lock import FILE_NAME, LockedTarget, ProjectLock, differences, lock_text
from packager.core.references import HubReference, RegistryTarget, spell_hub_id
from packager.core.request import BuildRequest
from packager.images.target import parse_target
from packager.pipeline import pipeline
from packager.pipeline.lock import lock_of

_MOST = 8  # differences in one message


@click.command()
@click.argument("names", nargs=-1, metavar="[@TARGET]...")
@registry_options
@catalog_option
@progress_options
@format_option
def lock(
    names: tuple[str, ...],
    progress: str,
    quiet: bool,
    output_format: str,
    **given: Any,
) -> None:
    """Pin what the targets of packager.toml stand for, in packager.lock beside it.

    Pinned are commits of models, digests of local files and base images, locks of tools,
    and texts.  Nothing is built.  `packager build @NAME --locked` builds on these commits
    and bases, and ends with status 5 where anything else differs.

    \b
    packager lock                # every target
    packager lock @small         # one of them; the others stay as they are
    """
    project = open_project()
    chosen = [name.removeprefix("@") for name in names] or list(project.targets)
    path = place_of(project)
    kept = read_lock(path).targets if names and path.exists() else {}
    with shown_progress(progress, quiet=quiet, as_json=output_format == "json") as on_event:
        found = {}
        for name in chosen:
            choose_target(name)
            request = make_request(None)
            settings = replace(settings_for(request), on_event=on_event, on_warning=warn, **given)
            found[name] = resolve_target(project, name, request, settings)
    whole = ProjectLock(
        targets={**{name: kept[name] for name in kept if name in project.targets}, **found}
    )
    text = lock_text(whole)
    with explain_disk_errors(path):
        write_atomically(path, text.encode())
    if output_format == "json":
        print_json_text(text)
        return
    if not quiet:
        note(f"locked: {', '.join(chosen)}")
    print_value(str(path))


def locked_request(
    project: Project, name: str, request: BuildRequest, settings: Settings
) -> BuildRequest:
    """Return a target's request on the commit and the base of the lock file.

    Raises `NotReproduced` for whatever else differs from it, `NotFound` without one.
    """
    path = place_of(project)
    if not path.exists():
        raise NotFound(f"there is no {FILE_NAME} beside {project.path}", hint="run `packager lock`")
    locked = read_lock(path).targets.get(name)
    if locked is None:
        raise NotFound(
            f"lock file {shorten(str(path), 200)} has no target {shorten(name)}",
            hint=f"run `packager lock @{name}`",
        )
    pinned = _pinned(request, locked)
    now = resolve_target(project, name, pinned, settings)
    found = list(differences(locked, now))
    if found:
        more = f"; and {len(found) - _MOST} more" if len(found) > _MOST else ""
        raise NotReproduced(
            f"target {shorten(name)} differs from {FILE_NAME}: {'; '.join(found[:_MOST])}{more}",
            hint=f"restore it, or take it over with `packager lock @{name}`",
            code="LockDiffers",
        )
    return pinned


def resolve_target(
    project: Project, name: str, request: BuildRequest, settings: Settings
) -> LockedTarget:
    """Return what a target stands for now; nothing is built, and no weights are downloaded."""
    services = services_for(replace(settings, headers_only=True, read_local=True))
    planned = pipeline.plan(request, services, with_base=True)
    return lock_of(planned, project.targets[name], services.pin_files)


def _pinned(request: BuildRequest, locked: LockedTarget) -> BuildRequest:
    """Return the request on the locked commit and base, where their names may have moved."""
    changed: dict[str, str] = {}
    reference = parse_model_reference(request.model)
    if isinstance(reference, HubReference) and locked.model.revision:
        changed["model"] = spell_hub_id(
            locked.model.name, locked.model.revision, is_streamed=reference.is_streamed
        )
    target = parse_target(locked.base.reference, BASES)
    if isinstance(target, RegistryTarget):
        changed["base"] = target.with_digest(locked.base.digest).text
    return request.model_copy(update=changed)


def place_of(project: Project) -> Path:
    """Return where the lock file of a project is."""
    return project.path.with_name(FILE_NAME)


def read_lock(path: Path) -> ProjectLock:
    """Read a lock file; raise `UsageError` for one that packager did not write."""
    data = read_user_file(path, what="lock file", hint="run `packager lock`")
    try:
        return parse_model(ProjectLock, data)
    except NotStrict as error:
        raise UsageError(
            f"lock file {shorten(str(path), 200)} cannot be read: {error}",
            hint="delete it and run `packager lock`",
        ) from error
