"""Checks of what this machine can do for packager, each with its fix.

Nothing is started, and only the Docker Engine's socket is contacted.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from packager.catalog.containers import containers
from packager.catalog.drivers import cuda_drivers, runs_on
from packager.catalog.machine import describe_machine, nvidia_driver
from packager.core.devices import Gpus
from packager.core.documents import shorten
from packager.core.errors import PackagerError, UsageError
from packager.core.files.atomic import home_dir
from packager.core.reports.report import Lines, Report, Row, Table, one_section, word_columns
from packager.core.suggestions import guessed
from packager.core.text import hide_userinfo
from packager.core.units import decimal, gib
from packager.core.versions import version_key
from packager.images.docker_engine import connect_engine
from packager.images.registry.credentials import BadCredentialsFile, listed_logins
from packager.optimize.steps.tools.environments import Installed

_ENOUGH_DISK_BYTES = 10 * 10**9  # the embedded serving base takes 2-3 GB, twice while it is built


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Result of one check. `missing` limits what can be done; no result is fatal."""

    name: str
    status: Literal["ok", "missing"]
    found: str
    needed_for: str
    fix: str = ""


def examine(
    environment: Mapping[str, str],
    state_dir: Path,
    *,
    gpus: Gpus | None = None,
    installed: Iterable[Installed] = (),
) -> list[Check]:
    """Run all checks; return them in the order in which a user meets them.

    `gpus` are those that steps may use, `installed` the environments that tools have.
    """
    checks = [
        _python(),
        _disk(state_dir),
        _device(),
        *driver_checks(nvidia_driver()),
        _engine(),
        _embedded_base(),
        _base_builder(),
        _registry_logins(environment),
        _hub(environment),
        _tool_environments(gpus or Gpus(count=0), tuple(installed)),
    ]
    # Addresses may have been set with a name and a password.
    return [replace(one, found=hide_userinfo(one.found)) for one in checks]


def named_checks(checks: Sequence[Check], names: Sequence[str]) -> list[Check]:
    """Return the checks of these names, `docker-engine` or `docker engine`.

    Raises `UsageError` for a name that no check has.
    """
    known = {check.name.replace(" ", "-"): check for check in checks}
    wanted = [name.strip().lower().replace(" ", "-") for name in names]
    if strange := [name for name in wanted if name not in known]:
        raise UsageError(
            f"there is no check {shorten(strange[0])}",
            hint=guessed(strange[0], known, f"checks: {', '.join(known)}"),
        )
    return [known[name] for name in dict.fromkeys(wanted)]


def doctor_report(checks: Sequence[Check]) -> Report:
    """Return each check with what it is needed for, and its fix."""
    lines: list[str] = []
    for check in checks:
        mark = "ok     " if check.status == "ok" else "missing"
        lines.append(f"{mark}  {check.name}: {check.found}")
        if check.fix:
            lines += (f"         needed for {check.needed_for}", f"         fix: {check.fix}")
    rows = (
        Row((check.name, check.status, check.found, check.needed_for, check.fix))
        for check in checks
    )
    columns = word_columns("check", "status", "found", "needed for", "fix")
    table = Table(columns=columns, rows=tuple(rows), caption="Checks and fixes", medium="page")
    return one_section("This machine", Lines(tuple(lines)), table)


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check(name="python", status="ok", found=version, needed_for="everything")


def _disk(state_dir: Path) -> Check:
    existing = next(place for place in (state_dir, *state_dir.parents) if _is_there(place))
    free = shutil.disk_usage(existing).free
    enough = free >= _ENOUGH_DISK_BYTES
    return Check(
        name="disk",
        status="ok" if enough else "missing",
        found=f"{decimal(free)} free at {existing}",
        needed_for="serving bases and oci: outputs; a push to a registry needs none",
        fix="" if enough else f"free at least {decimal(_ENOUGH_DISK_BYTES)}",
    )


def _is_there(path: Path) -> bool:
    """Return whether the path exists; False also where access is denied."""
    try:
        return path.exists()
    except PermissionError:
        return False


def _device() -> Check:
    machine = describe_machine()
    found = f"{machine.devices} x {machine.device_name}, {gib(machine.device_bytes)}"
    if machine.kind == "cpu":
        return Check(
            name="gpu",
            status="missing",
            found=f"none; CPU: {found}",
            needed_for="running GPU images here; building them needs none",
            fix="run on a machine with an NVIDIA driver, or build here and run there",
        )
    return Check(name="gpu", status="ok", found=found, needed_for="running GPU images here")


def driver_checks(driver: str) -> list[Check]:
    """Compare the driver with what each CUDA of serving images needs; [] without a driver.

    `cuda-compat`, in many images, may make an older driver of a data-center GPU sufficient.
    """
    if not driver:
        return []
    rows = [(row, runs_on(row, driver)) for row in cuda_drivers()]
    runs = [f"CUDA {row.major}" for row, fits in rows if fits]
    older = [row for row, fits in rows if fits is False]
    needed_for = "running images of the newest CUDA here; `cu130` in a tag is CUDA 13"
    if not runs and not older:
        found = f"version {driver[:40]!r} cannot be read"
        fix = "look at it with `nvidia-smi`"
    elif older:
        lacks = ", ".join(f"CUDA {row.major} needs {row.least}" for row in older)
        can = f"runs {' and '.join(runs)}; " if runs else ""
        found = f"{driver}: {can}{lacks}"
        fix = f"install driver {older[0].least} or later"
        if named := ", ".join(newest_images(driver)):
            fix += f", or take an older image with --container-version: {named}"
    else:
        found, fix = f"{driver}: runs {' and '.join(runs)}", ""
    status: Literal["ok", "missing"] = "missing" if fix else "ok"
    return [Check(name="gpu driver", status=status, found=found, needed_for=needed_for, fix=fix)]


def newest_images(driver: str) -> Iterator[str]:
    """Yield the newest image of each family that a driver is new enough for: `lmi 24`."""
    found: set[str] = set()
    for image in containers():
        least, has = version_key(image.least_driver), version_key(driver)
        if image.family not in found and least is not None and has is not None and has >= least:
            found.add(image.family)
            yield f"{image.family} {image.release or image.engine_version}"


def _engine() -> Check:
    needed_for = "docker: outputs and `packager smoke`"
    try:
        engine = connect_engine(timeout_s=5)
        found = f"{engine.version()['Version']}, data in {engine.info()['DockerRootDir']}"
    except PackagerError as error:
        return Check(
            name="docker engine",
            status="missing",
            found=error.message,
            needed_for=needed_for,
            fix=error.hint,
        )
    return Check(name="docker engine", status="ok", found=found, needed_for=needed_for)


def _embedded_base() -> Check:
    from packager.images.bases.embedded import find_built

    built = find_built("vllm-cpu")
    return Check(
        name="serving base vllm-cpu",
        status="ok" if built else "missing",
        found=str(built) if built else "not built",
        needed_for="--family vllm on CPU without --base",
        fix="" if built else "packager base build vllm-cpu",
    )


def _base_builder() -> Check:
    debootstrap, root = shutil.which("debootstrap", path=_SBIN), os.geteuid() == 0
    ready = bool(debootstrap) and root
    found = f"debootstrap {'found' if debootstrap else 'not found'}, {'' if root else 'not '}root"
    return Check(
        name="base builder",
        status="ok" if ready else "missing",
        found=found,
        needed_for="packager base build",
        fix="" if ready else "as root on Debian: apt-get install debootstrap",
    )


_SBIN = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def _registry_logins(environment: Mapping[str, str]) -> Check:
    try:
        hosts = sorted(set(listed_logins(environment)))
        found, fix = ", ".join(hosts) or "none", "docker login HOST (or skopeo login)"
    except BadCredentialsFile as error:
        hosts, found, fix = [], error.message, error.hint
    return Check(
        name="registry logins",
        status="ok" if hosts else "missing",
        found=found,
        needed_for="pushing to a registry that wants a login",
        fix="" if hosts else fix,
    )


def _hub(environment: Mapping[str, str]) -> Check:
    endpoint = environment.get("HF_ENDPOINT") or "the public Hugging Face Hub"
    token = environment.get("HF_TOKEN") or _is_there(home_dir() / ".cache/huggingface/token")
    offline = environment.get("HF_HUB_OFFLINE", "") not in ("", "0")
    return Check(
        name="model hub",
        status="ok" if token and not offline else "missing",
        found=f"{endpoint}, {'a token' if token else 'no token'}{', offline' if offline else ''}",
        needed_for="gated models; public ones need no token",
        fix="unset HF_HUB_OFFLINE" if offline else "" if token else "set HF_TOKEN",
    )


def _tool_environments(gpus: Gpus, installed: tuple[Installed, ...]) -> Check:
    """Report which builds of torch there are environments for, and which steps here take."""
    installer = shutil.which("uv") or "pip"
    made = [
        f"{one.tool} for {one.build} ({decimal(one.bytes)})" for one in installed if one.current
    ]
    build = "cuda" if gpus.count else "cpu"
    why = f"{gpus.count} GPUs are here for steps" if gpus.count else "no GPU is here for steps"
    return Check(
        name="tool environments",
        status="ok",
        found=f"{', '.join(made) or 'none yet'}; torch for {build}: {why}; made with {installer}",
        needed_for="quantizing and compiling",
    )
