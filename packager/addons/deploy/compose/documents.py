"""The compose file of a deployment, and the files beside it. Pure.

Compose replaces `$NAME` in every value before it reads it: each `$` of ours is written `$$`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

import h11
import yaml

from packager.addons.deploy.compose import front, gate
from packager.addons.deploy.compose.spec import CaptureSpec, ComposeSpec
from packager.addons.deploy.grace import with_grace
from packager.addons.deploy.merging import MergeRules
from packager.addons.deploy.patches import bad_patch
from packager.addons.fleet.kubernetes import CORES_A_CHIP
from packager.core import capture
from packager.core.capture.settings import DIRECTORY, REDACT_FILE, VARIABLE, CaptureSettings
from packager.core.deployment import Change, DeployFile, Deployment
from packager.core.errors import PackagerError
from packager.core.serving import MOUNTED_DRAFT_DIR, MOUNTED_MODEL_DIR
from packager.core.share import PACKAGE
from packager.core.stopping import PLATFORM_GRACE_S
from packager.pipeline.planning.health import health_check_of

Service: TypeAlias = Mapping[str, Any]

FILE, FRONT_FILE, SERVERS_FILE, ENV_FILE = (
    "compose.yaml",
    "front/front.py",
    "front/servers.json",
    ".env",
)
PARSER_DIR = "front/h11"
FRONT, SERVER = "front", "server"
GENERATIONS = ("a", "b")
LABEL = "dev.packager.deploy"  # of every container: the name of its deployment
CONFIG_LABEL = "dev.packager.deploy.config"  # of a server: digest of its service
_FRONT_DIR = "/front"
_FRONT_MEMORY = 512 * 1024**2  # bytes; some 25 MB are used, and bodies on their way
_STARTING_S = 300
_FORMS: Mapping[str, type] = {  # of fields that are read here again
    **dict.fromkeys(("environment", "labels", "healthcheck", "deploy"), dict),
    **dict.fromkeys(("volumes", "ports", "secrets", "devices", "env_file", "tmpfs"), list),
    **dict.fromkeys(("command", "entrypoint", "cap_drop", "security_opt"), list),
}
# As compose merges several files: lists grow, but for commands; mounts are found by their target.
_RULES = MergeRules(
    keys={"volumes": ("target",)},
    appends=True,
    replaced=frozenset({"command", "entrypoint", "test", "device_ids"}),
)


def not_read_back(path: str) -> PackagerError:
    """Return an error: a rendered file does not say what was meant."""
    return PackagerError(
        f"the rendered file {path!r} does not read back as it was meant", code="NotReadBack"
    )


def server_names(generation: str, replicas: int) -> tuple[str, ...]:
    """Return the services of the servers of one generation."""
    return tuple(f"{SERVER}-{generation}{number}" for number in range(1, replicas + 1))


def generation_of(service: str) -> str:
    """Return the generation of a server's service; "" of another service."""
    rest = service.removeprefix(f"{SERVER}-")
    return rest[0] if rest != service and rest[:1] in GENERATIONS else ""


def server_services(
    deployment: Deployment, wanted: ComposeSpec, generation: str
) -> dict[str, Service]:
    """Return the servers of one generation, with unescaped values.

    Each replica has devices of its own; two generations share none where there are enough.
    """
    names = server_names(generation, wanted.replicas)
    services = [
        _server(deployment, wanted, number, generation) for number in range(wanted.replicas)
    ]
    return dict(zip(names, services, strict=True))


def config_digest(deployment: Deployment, wanted: ComposeSpec) -> str:
    """Return the identity of a set of servers, independent of its generation."""
    services = [
        _server(deployment, wanted, number, GENERATIONS[0], labelled=False)
        for number in range(wanted.replicas)
    ]
    # A service names its secrets, and not their files; and neither says what is in the files.
    whole: list[Any] = [services, dict(wanted.secrets)]
    whole += [wanted.contents] if wanted.contents else []
    whole += [one.digest for one in wanted.adapters]
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:16]


def front_service(deployment: Deployment, wanted: ComposeSpec, image: str) -> Service:
    """Return the front; `image` stays the one that it was started with, whatever is served."""
    host = f"[{wanted.host}]" if ":" in wanted.host else wanted.host
    deployment = ended(deployment, wanted)
    made = {
        "image": image,
        "entrypoint": ["python3", "-I", "-S", f"{_FRONT_DIR}/front.py"],
        "command": [
            f"{_FRONT_DIR}/servers.json",
            str(deployment.port),
            str(_grace_s(deployment)),
        ],
        "ports": [f"{host}:{wanted.host_port}:{deployment.port}"],
        "volumes": [_bind("./front", _FRONT_DIR)],
        "environment": {"NVIDIA_VISIBLE_DEVICES": "void"},  # it needs no GPU
        "labels": {LABEL: deployment.name},
        "mem_limit": _FRONT_MEMORY,
        "stop_grace_period": f"{_grace_s(deployment)}s",
        "healthcheck": _health(deployment, front.STATE, 0),
        **_hardening(),
        "read_only": True,
    }
    if wanted.capture is not None:
        made |= _capturing(deployment.name, made, wanted.capture)
    return _patched(FRONT, made, wanted)


def front_changes(
    front: Service, deployment: Deployment, wanted: ComposeSpec
) -> tuple[Change, ...]:
    """Return how an update changes the front; another image or head leaves it as it is."""
    new = front_service(deployment, wanted, str(front.get("image")))
    if front == new:
        return ()
    changed = differences(front, new)
    return (Change(kind="replace", resource="front", name=FRONT, differences=changed),)


def differences(old: Service, new: Service) -> tuple[tuple[str, Any, Any], ...]:
    """Return the fields of a service that change: name, value before, value after."""
    names = sorted({*old, *new} - {"labels"})
    return tuple(
        (name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)
    )


def _capturing(name: str, made: Service, wanted: CaptureSpec) -> Service:
    """Return what lets the front write captures: it has no rights but its user's."""
    settings = CaptureSettings(
        name=f"{name}/all",
        share=wanted.share,
        command=REDACT_FILE if wanted.redact_file else "",
    )
    place: dict[str, Any] = {"type": "bind", "source": wanted.directory, "target": DIRECTORY}
    volumes = [*made["volumes"], place]
    if wanted.redact_file:
        volumes.append(_bind(wanted.redact_file, REDACT_FILE))
    return {
        "user": wanted.owner,
        "volumes": volumes,
        "environment": {**made["environment"], VARIABLE: settings.text()},
    }


def document_of(
    front_of: Service, servers: Mapping[str, Service], secrets: Mapping[str, str]
) -> dict[str, Any]:
    """Return the compose file's document, as it is meant."""
    document: dict[str, Any] = {"services": {FRONT: front_of, **servers}}
    if secrets:
        document["secrets"] = {name: {"file": path} for name, path in sorted(secrets.items())}
    return document


def render_document(document: Mapping[str, Any]) -> DeployFile:
    """Return the compose file; raise `UsageError` where YAML or compose would read another."""
    escaped = _mapped(document, lambda text: text.replace("$", "$$"))
    text = yaml.safe_dump(escaped, sort_keys=False, width=100, allow_unicode=False)
    if parse_document(text) != _mapped(document, str):
        raise not_read_back(FILE)
    return DeployFile(FILE, text)


def parse_document(text: str) -> dict[str, Any]:
    """Return the document of a compose file that we have written, as it was meant."""
    read = yaml.safe_load(text)
    found = _mapped(read, lambda one: one.replace("$$", "$")) if isinstance(read, dict) else {}
    return dict(found)


def servers_file(
    deployment_port: int, health_path: str, serving: Sequence[str], coming: Sequence[str] = ()
) -> DeployFile:
    """Return the file by which the front knows its servers."""
    document = {
        "servers": [f"{name}:{deployment_port}" for name in serving],
        "next": [f"{name}:{deployment_port}" for name in coming],
        "health": health_path,
    }
    return DeployFile(SERVERS_FILE, json.dumps(document, indent=2) + "\n")


def files_beside(name: str) -> tuple[DeployFile, ...]:
    """Return the front's program with h11, and the file that tells composes the project's name."""
    program = Path(front.__file__).read_text(encoding="utf-8")
    return (
        DeployFile(ENV_FILE, f"COMPOSE_PROJECT_NAME={name}\n"),
        DeployFile(FRONT_FILE, program),
        *_parser_files(),
        *_module_files(),
    )


@cache
def _module_files() -> tuple[DeployFile, ...]:
    """Return the modules of ours that the front imports, below packages that are empty."""
    captures = Path(capture.__file__).parent.glob("*.py")
    found: dict[str, str] = {}
    for place in (Path(gate.__file__), *sorted(captures)):
        path = PurePosixPath("front/packager") / place.relative_to(PACKAGE).as_posix()
        found |= {f"{one}/__init__.py": "" for one in list(path.parents)[:-2]}
        if place.name != "__init__.py":
            found[str(path)] = place.read_text(encoding="utf-8")
    return tuple(DeployFile(path, text) for path, text in found.items())


@cache
def _parser_files() -> tuple[DeployFile, ...]:
    """Return h11 as it is installed here, with its licence: images need not have it.

    It is Python alone, and takes every version that images have.
    """
    listed = metadata.files("h11") or ()
    licences = (one.locate() for one in listed if one.name.startswith("LICENSE"))
    places = [*Path(h11.__file__).parent.glob("*.py"), *map(Path, licences)]
    return tuple(
        DeployFile(f"{PARSER_DIR}/{place.name}", place.read_text(encoding="utf-8"))
        for place in sorted(places, key=lambda one: one.name)
    )


def _server(
    deployment: Deployment,
    wanted: ComposeSpec,
    number: int,
    generation: str,
    *,
    labelled: bool = True,
) -> Service:
    deployment = ended(deployment, wanted)
    environment = {
        **deployment.env,
        **wanted.env,
        **dict.fromkeys(wanted.passed),
    }
    volumes = [
        _bind(source, target)
        for source, target in (
            (wanted.model_dir, MOUNTED_MODEL_DIR),
            (wanted.draft_dir, MOUNTED_DRAFT_DIR),
            *((one.source, one.directory) for one in wanted.adapters),
        )
        if source
    ]
    start_s = deployment.start_period_s or _STARTING_S
    labels = {LABEL: deployment.name}
    if labelled:
        labels[CONFIG_LABEL] = config_digest(deployment, wanted)
    service: dict[str, Any] = {
        "image": deployment.image,
        "command": list(deployment.arguments) or None,
        "environment": dict(sorted(environment.items())) or None,
        "env_file": list(wanted.env_files) or None,
        "volumes": volumes or None,
        "secrets": sorted(wanted.secrets) or None,
        "shm_size": deployment.shm_bytes or None,
        "user": deployment.user or None,
        "labels": labels,
        "stop_grace_period": f"{_grace_s(deployment)}s",
        "healthcheck": _health(deployment, deployment.health_path, start_s),
        **_devices(deployment, wanted, number, generation),
        **_hardening(),
    }
    if deployment.read_only_root:
        service["read_only"] = True
        # Compiled kernels are loaded from there: Docker would mount it noexec.
        service["tmpfs"] = [
            f"{path}:exec,mode=1777" for path in dict.fromkeys(("/tmp", *deployment.writable))
        ]
    made = {name: value for name, value in service.items() if value is not None}
    return _patched(SERVER, made, wanted)


def ended(deployment: Deployment, wanted: ComposeSpec) -> Deployment:
    """Return a deployment whose engine ends running requests when its container is killed."""
    return with_grace(deployment, wanted.grace_s, env=wanted.env)


def _patched(name: str, service: Mapping[str, Any], wanted: ComposeSpec) -> dict[str, Any]:
    """Return a service with what the user's patch changes of it; raise `UsageError`."""
    wanted.patch.refuse_others(("services",), "a part of the file that is patched")
    services = wanted.patch.below("services")
    services.refuse_others((FRONT, SERVER), "a service that is patched")
    part = services.below(name)
    if not part:
        return dict(service)
    made = part.apply(service, _RULES)
    for key, form in _FORMS.items():
        if not isinstance(made.get(key, form()), form):
            written = "mapping" if form is dict else "list"
            raise bad_patch(f"services.{name}.{key} is written as a {written} here")
    if not service["labels"].items() <= made.get("labels", {}).items():
        raise bad_patch(f"services.{name}.labels lacks {LABEL}, by which it is found")
    return made


def _devices(
    deployment: Deployment, wanted: ComposeSpec, number: int, generation: str
) -> dict[str, Any]:
    """Return what gives a replica its devices."""
    kind, count = deployment.instance.kind, deployment.devices
    if kind == "nvidia" and count:
        first = number * count
        if generation == GENERATIONS[1] and has_room(deployment, wanted):
            first += wanted.replicas * count
        reserved = {
            "driver": "nvidia",
            "device_ids": list(pool_of(deployment, wanted)[first : first + count]),
            "capabilities": ["gpu"],
        }
        return {"deploy": {"resources": {"reservations": {"devices": [reserved]}}}}
    if kind == "neuron" and count:
        chip = CORES_A_CHIP.get(deployment.instance.device_name, 1)
        chips = -(-count // chip)
        begin = number * chips
        if generation == GENERATIONS[1] and has_room(deployment, wanted):
            begin += wanted.replicas * chips
        pool = pool_of(deployment, wanted)
        paths = [f"/dev/neuron{one}" for one in pool[begin : begin + chips]]
        return {"devices": [f"{path}:{path}" for path in paths]}
    return {}


def pool_of(deployment: Deployment, wanted: ComposeSpec) -> tuple[str, ...]:
    """Return the devices that a project may use: GPUs, or chips of Neuron."""
    count = deployment.instance.devices
    if deployment.instance.kind == "neuron":
        count = -(-count // CORES_A_CHIP.get(deployment.instance.device_name, 1))
    return wanted.devices or tuple(str(number) for number in range(count))


def needed_of(deployment: Deployment, wanted: ComposeSpec) -> int:
    """Return how many of them one generation of servers uses."""
    count = deployment.devices
    if deployment.instance.kind == "neuron":
        count = -(-count // CORES_A_CHIP.get(deployment.instance.device_name, 1))
    return count * wanted.replicas


def has_room(deployment: Deployment, wanted: ComposeSpec) -> bool:
    """Return whether a second generation finds devices of its own beside the first."""
    if deployment.instance.kind == "cpu":
        return True
    return 2 * needed_of(deployment, wanted) <= len(pool_of(deployment, wanted))


def _health(deployment: Deployment, path: str, start_s: int) -> dict[str, Any]:
    check = health_check_of(path, deployment.port, start_s)
    return {
        "test": ["CMD", *check.command],
        "interval": f"{check.interval_s}s",
        "timeout": f"{check.timeout_s}s",
        "retries": check.retries,
        "start_period": f"{check.start_period_s}s",
    }


def _hardening() -> dict[str, Any]:
    return {
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "restart": "unless-stopped",
    }


def _bind(source: str, target: str) -> dict[str, Any]:
    return {"type": "bind", "source": source, "target": target, "read_only": True}


def _grace_s(deployment: Deployment) -> int:
    return deployment.grace_s or PLATFORM_GRACE_S


def _mapped(found: Any, change: Any) -> Any:
    """Return a document with every text in its values changed."""
    if isinstance(found, Mapping):
        return {key: _mapped(value, change) for key, value in found.items()}
    if isinstance(found, list | tuple):
        return [_mapped(value, change) for value in found]
    return change(found) if isinstance(found, str) else found
