"""Detection of a file's kind of configuration, by name and content, and its servers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePath

from packager.addons.check.configs import read_config
from packager.addons.check.containers import read_containers
from packager.addons.check.dialects import POSIX, dialect_of
from packager.addons.check.dockerfiles import read_dockerfile
from packager.addons.check.engine_commands import may_start, servers_in
from packager.addons.check.environment import read_env_file
from packager.addons.check.hcl import parse_hcl
from packager.addons.check.manifests import read_compose, read_kubernetes
from packager.addons.check.properties import read_properties
from packager.addons.check.shell import read_commands
from packager.addons.check.text import (
    MAX_BYTES,
    NotReadable,
    carriage_returns,
    control_remarks,
    decode,
)
from packager.addons.check.text_places import at
from packager.addons.check.units import read_unit
from packager.addons.check.values import ConfigDocument, DescribedServer, Kind, Remark, Setting
from packager.core.documents import NotStrict
from packager.core.positions import Place
from packager.core.yaml_nodes import YamlNode, parse_yaml

COMMENT = re.compile(r"(?m)(?:^|\s)(?:#|//).*$")
SETTING = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=", re.ASCII)
PROPERTY = re.compile(r"(?:option\.[A-Za-z_]+|engine)\s*[=:]", re.ASCII)
FROM = re.compile(r"\s*(?:ARG\s.*\n\s*)*FROM\s+\S", re.ASCII)
YAML_KEY = re.compile(r"(?:---|[\"']?[A-Za-z_][\w.-]*[\"']?:(?:\s|$))")
SBATCH = re.compile(r"(?m)^#SBATCH[ \t]+(.*)$")
GPUS = re.compile(r"(?:--gres=gpu:(?:[\w.-]+:)?|--gpus(?:-per-node)?=(?:[\w.-]+:)?|-G)(\d+)")
NODES = re.compile(r"(?:--nodes=?|-N=?)(?!1$)\d+(?:-\d+)?")
UNIT = re.compile(r"\s*\[(?:Unit|Service|Container|program:[^\]]+|supervisord)\]")
HCL = re.compile(r"\s*(?:job|resource|variable|locals|terraform|data|module)\b[^\n{]*\{")
HCL_SUFFIXES = (".hcl", ".nomad", ".tf")
SUFFIXES: dict[str, Kind] = {
    ".properties": "properties",
    ".env": "env",
    ".list": "env",
    ".dockerfile": "dockerfile",
    **dict.fromkeys((".sh", ".bash", ".zsh", ".ps1", ".bat", ".cmd"), "command"),
    **dict.fromkeys((".sbatch", ".slurm", ".mk"), "command"),
    **dict.fromkeys((".service", ".container"), "unit"),
    **dict.fromkeys(HCL_SUFFIXES, "containers"),
}
NAMES: dict[str, Kind] = dict.fromkeys(
    ("makefile", "justfile", "jenkinsfile", "procfile"), "command"
)
# Text for people or other programs, not for an engine.
OTHERS = frozenset(
    [".md", ".rst", ".adoc", ".html", ".py", ".pyi", ".ipynb", ".js", ".ts", ".go", ".rs", ".java"]
)
MOST_SETTINGS = 4000  # of a file: each that no engine knows is compared with all that there are
YAML_SUFFIXES = (".yaml", ".yml", ".json")


def read_document(file: str, data: bytes, kind: Kind | None = None) -> ConfigDocument:
    """Read a file as what it is, or as `kind`; raise `NotReadable` where it is none of these."""
    if len(data) > MAX_BYTES:
        raise NotReadable(file, f"it has more than {MAX_BYTES} bytes")
    text = decode(file, data)
    if not text.strip():
        raise NotReadable(file, "it is empty")
    nodes: list[YamlNode] | None = None
    try:
        if kind is None:
            kind, nodes = _find_kind(file, text)
        if kind in {"kubernetes", "compose", "config"} and nodes is None:
            nodes = parse_yaml(text)
        servers, remarks = _read(kind, file, text, nodes or [])
    except NotStrict as error:
        raise NotReadable(file, str(error)) from error
    if sum(_size(server) for server in servers) > MOST_SETTINGS:
        raise NotReadable(file, f"it has more than {MOST_SETTINGS} settings and words")
    controls = tuple(control_remarks(file, text))
    if kind == "command" and dialect_of(text, PurePath(file).suffix.lower()) is POSIX:
        controls += tuple(carriage_returns(file, data))
    return ConfigDocument(file=file, kind=kind, servers=servers, remarks=(*remarks, *controls))


def is_other(data: bytes, file: str = "") -> bool:
    """Report whether a file's bytes name no command that starts an engine, comments aside."""
    if PurePath(file).suffix.lower() in OTHERS:
        return True
    return not may_start(COMMENT.sub("", data.decode("latin-1")))


def _size(server: DescribedServer) -> int:
    words = len(server.command) + len(server.arguments)
    return words + len(server.env) + len(server.properties) + len(server.config)


def _read(
    kind: Kind, file: str, text: str, nodes: list[YamlNode]
) -> tuple[tuple[DescribedServer, ...], tuple[Remark, ...]]:
    match kind:
        case "properties":
            server, remarks = read_properties(file, text)
            return (server,), remarks
        case "env":
            server, remarks = read_env_file(file, text)
            return (server,), remarks
        case "kubernetes":
            if not any(node.get("kind") is not None for node in nodes):
                raise NotStrict("it has no object of Kubernetes")
            return read_kubernetes(file, nodes)
        case "compose":
            if not any(node.get("services") is not None for node in nodes):
                raise NotStrict("it has no services")
            return read_compose(file, nodes)
        case "dockerfile":
            return read_dockerfile(file, text)
        case "config":
            return (read_config(file, nodes),), ()
        case "containers":
            documents = nodes if nodes or not _is_hcl(file, text) else parse_hcl(text)
            return tuple(read_containers(file, documents or parse_yaml(text))), ()
        case "unit":
            return read_unit(file, text), ()
    dialect = dialect_of(text, PurePath(file).suffix.lower())
    commands = read_commands(text, at(file), dialect)
    devices = tuple(slurm_devices(file, text))
    servers = (replace(one, resources=(*one.resources, *devices)) for one in servers_in(commands))
    return tuple(servers), ()


def slurm_devices(file: str, text: str) -> Iterator[Setting]:
    """Yield the devices that Slurm gives a job on one machine; none of a job on several."""
    asked = [(found, found[1].split()) for found in SBATCH.finditer(text)]
    if any(NODES.fullmatch("".join(words)) for _, words in asked):
        return
    for found, words in asked:
        for word in words:
            count = GPUS.fullmatch(word)
            if count is not None:
                line = text.count("\n", 0, found.start()) + 1
                yield Setting("devices", count[1], Place(file, line))


def _is_hcl(file: str, text: str) -> bool:
    return PurePath(file).suffix.lower() in HCL_SUFFIXES or HCL.match(text) is not None


def _find_kind(file: str, text: str) -> tuple[Kind, list[YamlNode] | None]:
    path = PurePath(file)
    name = path.name.lower()
    suffix = path.suffix.lower()
    if suffix in SUFFIXES:
        return SUFFIXES[suffix], None
    if name in NAMES:
        return NAMES[name], None
    if suffix in OTHERS:
        hint = "give the command or the file that it starts, or say with --as what it is"
        raise NotReadable(file, "it is no configuration, by its name", hint)
    if name.startswith(("dockerfile", "containerfile")):
        return "dockerfile", None
    if name == ".env" or name.startswith((".env.", "env.")):
        return "env", None
    if suffix in YAML_SUFFIXES:
        nodes = parse_yaml(text)
        return _kind_of_yaml(file, nodes), nodes
    return _kind_of_text(file, text)


def _kind_of_text(file: str, text: str) -> tuple[Kind, list[YamlNode] | None]:
    lines = [line.strip() for line in text.split("\n")]
    meant = [line for line in lines if line and not line.startswith(("#", "!"))]
    if UNIT.match("\n".join(meant)):
        return "unit", None
    if HCL.match("\n".join(meant)):
        return "containers", None
    if text.startswith("#!") or any(may_start(line) for line in meant):
        is_yaml = bool(meant) and YAML_KEY.match(meant[0]) and not text.startswith("#!")
        if not is_yaml:
            return ("dockerfile" if FROM.match("\n".join(meant)) else "command"), None
    if any(PROPERTY.match(line) for line in meant):
        return "properties", None
    if meant and all(SETTING.match(line) for line in meant):
        return "env", None
    if FROM.match("\n".join(meant)):
        return "dockerfile", None
    if meant and (YAML_KEY.match(meant[0]) or meant[0].startswith("{")):
        nodes = parse_yaml(text)
        return _kind_of_yaml(file, nodes), nodes
    raise NotReadable(file, "it is not a configuration of a server", "say what it is with --as")


def _kind_of_yaml(file: str, nodes: list[YamlNode]) -> Kind:
    if any(node.get("apiVersion") is not None and node.get("kind") is not None for node in nodes):
        return "kubernetes"
    if any(node.get("services") is not None for node in nodes):
        return "compose"
    if any(True for _ in read_containers(file, nodes)):
        return "containers"
    if len(nodes) == 1 and nodes[0].type == "mapping":
        return "config"
    raise NotReadable(file, "it is not a manifest, compose file or engine's options")
