"""Images of tools in the Docker Engine: a base with the tool's requirements installed."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from packager.core.documents import NotStrict, parse_object
from packager.core.errors import NotFound, ToolUnavailable
from packager.core.events import EventSink, StepEvent
from packager.core.tool import ToolFacts
from packager.images.docker_engine import engine_reason
from packager.optimize.steps.docker_containers import ended, own_container
from packager.optimize.steps.failures import read_tail
from packager.optimize.steps.logs import new_log
from packager.optimize.steps.processes import SUPERVISOR
from packager.optimize.steps.tools.definition import ToolDefinition
from packager.optimize.steps.tools.environments import Environments
from packager.optimize.steps.tools.installers import (
    INDEX_SETTINGS,
    install_options,
    refuse_missing_build,
    refuse_other_files,
)

ROOT = "/run/packager"
LABEL = "dev.packager.tool"
PYTHON_IMAGE = re.compile(r"(?:^|/)python:(?P<minor>\d+\.\d+)")
INSTALL_TIMEOUT_S = 3600.0


class ToolImages:
    """Finds the image of a tool in an engine, or builds it there."""

    def __init__(
        self,
        engine: Callable[[], Any],
        environments: Environments,
        *,
        base: str,
        log_dir: Path,
        on_event: EventSink,
        environment: Mapping[str, str],
    ) -> None:
        self._engine = engine
        self._environments = environments
        self._base = base  # "": the one that the tool names
        self._log_dir = log_dir
        self._on_event = on_event
        self._environment = environment

    def facts(self, tool: ToolDefinition) -> ToolFacts:
        """Describe the tool as its image has it, or as it declares itself."""
        python = _python_of(self._base or tool.provider.file.image)
        base = self.find_base(tool.provider, pull=False)
        if base is None:
            return tool.facts(None, python=python)
        image = self.find(_tag(tool.provider, base))
        return tool.facts(
            _versions_of(image) if image is not None else None,
            python=python,
            image=_name_of(base).rpartition("sha256:")[2],
        )

    def image(self, tool: ToolDefinition) -> str:
        """Return the tool's image, built where it is not there."""
        tool = tool.provider
        base = self.find_base(tool, pull=True)
        tag = _tag(tool, base)
        if self.find(tag) is None:
            self._install(tool, base, tag)
        return tag

    def _install(self, tool: ToolDefinition, base: Any, tag: str) -> None:
        """Install in a container, and keep it as an image.

        The user's pip settings are mounted and stay out of the image: they may have passwords.
        """
        step = f"tool {tool.name}"
        self._on_event(StepEvent(step=step, state="started", detail="building its image, once"))
        log = new_log(self._log_dir, f"image-{tool.name}")
        with tempfile.TemporaryDirectory(prefix="packager-pip-") as settings:
            config = Path(settings) / "pip.conf"
            config.write_text(_pip_settings(self._environment), encoding="utf-8")
            config.chmod(0o644)
            options = _install_options(tool, settings, self._environments.helper)
            with own_container(self._engine(), base.id, options) as container:
                _run_installer(container, tool.name)
                log.write_bytes(container.logs(stdout=False, stderr=True))
                if code := ended(container)["ExitCode"]:
                    refuse_other_files(tool.name, log)
                    refuse_missing_build(tool, log)
                    raise ToolUnavailable(
                        f"the image of tool {tool.name!r} could not be built: status {code}",
                        hint=f"all of the installer's log is in {log}; your pip settings apply",
                        log=read_tail(log),
                    )
                versions = container.logs(stdout=True, stderr=False).decode().strip()
                made = {
                    LABEL: versions,
                    f"{LABEL}.hashes": tool.hashes,
                    f"{LABEL}.base": _name_of(base),
                }
                label = "LABEL " + " ".join(f"{key}={json.dumps(made[key])}" for key in made)
                plain = ["ENV PIP_CONFIG_FILE=", "ENV PIP_NO_CACHE_DIR="]
                repository, _, version = tag.partition(":")
                container.commit(repository, version, changes=[label, *plain, "USER root"])
        self._on_event(StepEvent(step=step, state="finished", detail=f"image {tag} built"))

    def find_base(self, tool: ToolDefinition, *, pull: bool) -> Any:
        """Return the image that the tool's is made from; fetched once where it is not here."""
        from docker.errors import APIError

        reference = self._base or tool.file.image
        found = self.find(reference)
        if found is not None or not pull:
            return found
        try:
            return self._engine().images.pull(reference)
        except APIError as error:
            raise NotFound(
                f"the base image {reference!r} of tool {tool.name!r} is not here and cannot be "
                f"pulled: {engine_reason(error)}",
                hint="name another with PACKAGER_TOOL_BASE; it needs Python and pip",
            ) from error

    def find(self, reference: str) -> Any:
        """Return an image of the engine, or None."""
        from docker.errors import APIError

        try:
            return self._engine().images.get(reference)
        except APIError:
            return None


def _install_options(tool: ToolDefinition, settings: str, helper: Path) -> dict[str, Any]:
    """Return the options of the container that installs a tool's requirements."""
    from docker.types import Mount

    places = {tool.directory: "tool", helper: "helper"}
    return {
        "command": [
            *("python3", "-I", f"{ROOT}/supervise.py", "-1"),
            "python3",
            f"{ROOT}/helper/install.py",
            f"{ROOT}/tool",
            *install_options(tool),
        ],
        "stdin_open": True,  # closed when we let go, or die: see supervise.py
        "entrypoint": [],
        "environment": {
            "PIP_CONFIG_FILE": f"{ROOT}/pip/pip.conf",
            "PIP_NO_CACHE_DIR": "1",
            "PIP_BREAK_SYSTEM_PACKAGES": "1",
            "PIP_ROOT_USER_ACTION": "ignore",
        },
        "user": "0:0",
        "network_mode": "host",
        "mounts": [
            Mount(f"{ROOT}/pip", settings, type="bind", read_only=True),
            Mount(f"{ROOT}/supervise.py", str(SUPERVISOR), type="bind", read_only=True),
            *(
                Mount(f"{ROOT}/{name}", str(place.absolute()), type="bind", read_only=True)
                for place, name in places.items()
            ),
        ],
    }


def _run_installer(container: Any, name: str) -> None:
    """Start a container and wait for its end; raise where it takes too long."""
    with closing(container.attach_socket(params={"stdin": 1, "stream": 1})):
        container.start()
        began = time.monotonic()
        while container.status != "exited":
            time.sleep(0.2)
            container.reload()
            if time.monotonic() - began > INSTALL_TIMEOUT_S:
                raise ToolUnavailable(
                    f"installing tool {name!r} takes longer than {INSTALL_TIMEOUT_S:.0f} s",
                    hint="check the network that containers have, and run again",
                )


def _python_of(reference: str) -> str:
    """Guess the Python of an image by its name, `python:3.12-slim`; "" for other names."""
    named = PYTHON_IMAGE.search(reference)
    return named["minor"] if named else ""


def _name_of(base: Any) -> str:
    """Return a base's name by digest: its registry's, else the engine's image id."""
    known: list[str] = base.attrs.get("RepoDigests") or []
    return known[0] if known else str(base.id)


def _versions_of(image: Any) -> dict[str, str]:
    """Read the versions in an image's label; none where another tool wrote the label."""
    label = image.labels.get(LABEL, "{}")
    try:
        found = parse_object(label.encode()) if isinstance(label, str) else {}
    except (NotStrict, UnicodeEncodeError):
        return {}
    return {name: version for name, version in found.items() if isinstance(version, str)}


def _tag(tool: ToolDefinition, base: Any) -> str:
    """Return the image's tag, derived from its contents: base and requirements."""
    identity = f"{tool.requirements_digest} {base.id}"
    return f"packager-tool-{tool.name}:{hashlib.sha256(identity.encode()).hexdigest()[:12]}"


def _pip_settings(environment: Mapping[str, str]) -> str:
    """Write the user's settings about indexes as a pip.conf."""
    lines = ["[global]"]
    for name in INDEX_SETTINGS:
        if value := environment.get(f"PIP_{name.upper().replace('-', '_')}"):
            lines.append(f"{name} = {value}")
    if len(lines) == 1:
        home = Path(environment.get("HOME", "/"))
        config = environment.get("XDG_CONFIG_HOME") or str(home / ".config")
        named = environment.get("PIP_CONFIG_FILE", "/dev/null")
        for file in (named, f"{config}/pip/pip.conf", home / ".pip/pip.conf", "/etc/pip.conf"):
            with suppress(OSError):
                if text := Path(file).read_text(encoding="utf-8"):
                    return text
    return "\n".join(lines) + "\n"
