"""Manifests of Kubernetes and compose files: every container with its command and variables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from packager.addons.check.containers import devices_in, servers_under
from packager.addons.check.engine_commands import container_servers, shared_memory
from packager.addons.check.properties import read_settings
from packager.addons.check.shell import read_commands
from packager.addons.check.text_places import inside
from packager.addons.check.values import DescribedServer, Edit, Remark, Setting, Word
from packager.core.documents import shorten
from packager.core.findings import Finding
from packager.core.positions import Place
from packager.core.yaml_nodes import YamlNode, spans_in

TEMPLATES = ("spec", "template", "spec")
CRON = ("spec", "jobTemplate", "spec", "template", "spec")
APPENDED = "VLLM_ADDITIONAL_ARGS"  # LLMInferenceService of KServe; read 2026-11-22
KUBERNETES = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)", re.ASCII)
DEFAULT = re.compile(r"\$\$|\$\{\w+:?-([^{}$]*)\}")  # where the environment has no other
NOT_TEXT = {"bool", "int", "float", "null"}


@dataclass(slots=True)
class _Reading:
    file: str
    remarks: list[Remark] = field(default_factory=list)
    maps: dict[str, YamlNode] = field(default_factory=dict)  # ConfigMaps of the same file, by name

    def place(self, node: YamlNode) -> Place:
        return Place(self.file, node.line, node.column)

    def add(self, node: YamlNode, finding: Finding) -> None:
        """Remark on a plain value that has to be a text: quotes around it mend it."""
        edit = Edit(place=self.place(node), old=node.text, new=f'"{node.text}"')
        self.remarks.append(Remark(edit.place, finding, edit if node.text else None))


def read_kubernetes(
    file: str, documents: Sequence[YamlNode]
) -> tuple[tuple[DescribedServer, ...], tuple[Remark, ...]]:
    """Read the containers of every object that runs some, lists of objects included."""
    reading = _Reading(file)
    objects = [one for document in documents for one in _objects(document)]
    for one in objects:
        if one.value("kind") == "ConfigMap":
            reading.maps[one.value("metadata", "name")] = one
    servers = [server for one in objects for server in _of_object(one, reading)]
    return tuple(servers), tuple(reading.remarks)


def read_compose(
    file: str, documents: Sequence[YamlNode]
) -> tuple[tuple[DescribedServer, ...], tuple[Remark, ...]]:
    """Read every service of a compose file."""
    reading = _Reading(file)
    servers: list[DescribedServer] = []
    for document in documents:
        services = document.get("services")
        for name, service in services.entries().items() if services else ():
            image = service.get("image")
            if image is None and service.get("command") is None:
                continue
            env = _compose_env(service, reading)
            entry = _compose_words(service.get("entrypoint"), reading)
            words = _compose_words(service.get("command"), reading)
            servers += container_servers(
                place=reading.place(service),
                name=f"service {name}",
                image=_interpolated(_word(image, reading)).text if image is not None else "",
                entrypoint=entry,
                arguments=words,
                env=env,
                resources=(*devices_in(service, file), *_compose_shm(service, reading)),
            )
    return tuple(servers), tuple(reading.remarks)


def _compose_shm(service: YamlNode, reading: _Reading) -> Iterator[Setting]:
    given = service.get("shm_size") or service.get("ipc")
    mounts = service.get("volumes") or service.get("tmpfs")
    listed = mounts.items if mounts is not None else ()
    if any("/dev/shm" in (one.text or one.value("target")) for one in listed):
        return
    found = Setting("shm", given.text, reading.place(given)) if given is not None else None
    yield shared_memory(found, reading.place(service))


def _objects(document: YamlNode) -> Iterator[YamlNode]:
    if document.value("kind").endswith("List") and document.get("items") is not None:
        yield from document.listed("items")
    else:
        yield document


def _of_object(one: YamlNode, reading: _Reading) -> Iterator[DescribedServer]:
    kind, name = one.value("kind"), one.value("metadata", "name")
    if kind == "ConfigMap":
        yield from _properties_in(one, reading)
    containers = [*_containers(one)]
    if not containers:  # of a kind that is not known, or text in a ConfigMap
        yield from servers_under(one, reading.file, f"{kind} {name}".strip())
    for container in containers:
        label = container.value("name")
        title = f"{kind} {name}".strip()
        for server in _container(container, reading):
            whole = _with_appended(server) if kind == "LLMInferenceService" else server
            yield replace(whole, name=f"{title}, container {label}" if label else title)


def _with_appended(server: DescribedServer) -> DescribedServer:
    """Add what KServe appends to the command that it starts vLLM with."""
    appended = next((one for one in server.env if one.name == APPENDED), None)
    if appended is None or appended.value is None or server.command or server.arguments:
        return server
    commands = read_commands(appended.value, lambda _row, _column: appended.place)
    words = tuple(word for command in commands for word in command.words)
    start = tuple(Word(text, appended.place) for text in ("vllm", "serve"))
    return replace(server, command=(*start, *words))


def _containers(one: YamlNode) -> Iterator[YamlNode]:
    """Yield every container, wherever the object's kind has them."""
    kind = one.value("kind")
    specs = [one.get("spec"), one.get(*TEMPLATES), one.get(*CRON)]
    if kind == "InferenceService":
        specs += [one.get("spec", "predictor"), one.get("spec", "predictor", "workerSpec")]
        model = one.get("spec", "predictor", "model")
        if model is not None:
            yield model
    if kind == "LLMInferenceService":
        specs += [one.get("spec", *path) for path in (("template",), ("prefill", "template"))]
        specs += [one.get("spec", "worker"), one.get("spec", "prefill", "worker")]
    if kind == "LeaderWorkerSet":
        template = one.get("spec", "leaderWorkerTemplate")
        for part in ("leaderTemplate", "workerTemplate"):
            specs.append(template.get(part, "spec") if template else None)
    seen: set[int] = set()
    for spec in specs:
        for where in ("containers", "initContainers"):
            for container in spec.listed(where) if spec is not None else ():
                if id(container) not in seen:
                    seen.add(id(container))
                    yield container


def expand_kubernetes(words: Iterable[Word], values: Mapping[str, str | None]) -> tuple[Word, ...]:
    """Replace `$(NAME)` by the container's variables, as the kubelet does."""

    def expanded(word: Word) -> Word:
        known = True

        def replaced(match: re.Match[str]) -> str:
            nonlocal known
            value = values.get(match[1])
            known = known and value is not None
            return match[0] if value is None else value

        text = KUBERNETES.sub(replaced, word.text)
        return Word(text, word.place, word.known and known, word.spans)

    return tuple(expanded(word) for word in words)


def _container(node: YamlNode, reading: _Reading) -> Iterator[DescribedServer]:
    env = _kubernetes_env(node, reading)
    values = {setting.name: setting.value for setting in env}
    command = expand_kubernetes(_texts(node.get("command"), reading), values)
    arguments = expand_kubernetes(_texts(node.get("args"), reading), values)
    yield from container_servers(
        place=reading.place(node),
        image=node.value("image"),
        entrypoint=command,
        arguments=arguments,
        env=env,
        resources=(*devices_in(node, reading.file), *_pod_shm(node, reading)),
    )


def _pod_shm(node: YamlNode, reading: _Reading) -> Iterator[Setting]:
    if not any(one.value("mountPath") == "/dev/shm" for one in node.listed("volumeMounts")):
        yield shared_memory(None, reading.place(node))


def _kubernetes_env(node: YamlNode, reading: _Reading) -> tuple[Setting, ...]:
    """Read a container's variables: those of `env` win over those of `envFrom`."""
    found: list[Setting] = []
    for source in node.listed("envFrom"):
        name = source.value("configMapRef", "name")
        data = reading.maps[name].get("data") if name in reading.maps else None
        prefix = source.value("prefix")
        for key, text in data.entries().items() if data else ():
            found.append(Setting(prefix + key, text.text, reading.place(text)))
    for one in node.listed("env"):
        name, value = one.value("name"), one.get("value")
        if value is not None and value.type in NOT_TEXT - {"null"}:
            message = f"{name!r} is {value.text} without quotes, and Kubernetes takes text only"
            hint = f'write value: "{value.text}"'
            reading.add(value, Finding("error", "value-not-text", message, hint))
        if value is None:
            known = "" if one.get("valueFrom") is None else None
            found.append(Setting(name, known, reading.place(one)))
        else:
            given = "" if value.type == "null" else value.text
            found.append(Setting(name, given, reading.place(one.get("name") or one)))
    return tuple(setting for setting in found if setting.name)


def _texts(node: YamlNode | None, reading: _Reading) -> tuple[Word, ...]:
    words = []
    for one in node.items if node is not None else ():
        if one.type in NOT_TEXT:
            message = f"the word {one.text} has no quotes, and Kubernetes takes text only"
            hint = f'write "{one.text}"'
            reading.add(one, Finding("error", "value-not-text", message, hint))
        words.append(_word(one, reading))
    return tuple(words)


def _word(node: YamlNode, reading: _Reading) -> Word:
    return Word(node.text, reading.place(node), spans=spans_in(node, reading.file))


def _compose_words(node: YamlNode | None, reading: _Reading) -> tuple[Word, ...]:
    """Read a command: a list of words, or a line that compose splits as a shell would."""
    if node is None or node.type == "null":
        return ()
    if node.type == "list":
        return tuple(_interpolated(_word(one, reading)) for one in node.items)
    # Compose joins what YAML has on several lines; `$$` is a dollar sign.
    whole = _word(node, reading)
    text = whole.text.replace("\n", " \\\n" if "\n" in whole.text.strip() else " ")
    commands = read_commands(text, inside(whole))
    return tuple(word for command in commands for word in command.words)


def _interpolated(word: Word) -> Word:
    """Return a word with the defaults of its variables; `$$` is a dollar sign."""
    text = DEFAULT.sub(lambda found: found[0] if found[0] == "$$" else found[1], word.text)
    known = "$" not in text.replace("$$", "")
    spans = word.spans if text == word.text else ()
    return Word(text.replace("$$", "$"), word.place, known, spans)


def _compose_env(service: YamlNode, reading: _Reading) -> tuple[Setting, ...]:
    node = service.get("environment")
    found: list[Setting] = []
    for one in node.items if node is not None else ():
        word = _interpolated(_word(one, reading))
        name, equals, text = word.text.partition("=")
        found.append(Setting(name, text if equals and word.known else None, word.place))
    for key, value in node.pairs if node is not None else ():
        if value.type == "bool":
            message = f"{key.text!r} is {value.text} without quotes, which compose refuses"
            hint = f'write {key.text}: "{value.text}"'
            reading.add(value, Finding("error", "value-not-text", message, hint))
        word = _interpolated(_word(value, reading))
        known = word.known and value.type != "null"  # null: from where compose runs
        found.append(Setting(key.text, word.text if known else None, reading.place(key)))
    return tuple(setting for setting in found if setting.name)


def _properties_in(one: YamlNode, reading: _Reading) -> Iterator[DescribedServer]:
    """Read a serving.properties that a ConfigMap holds."""
    data = one.get("data")
    for name, node in data.entries().items() if data is not None else ():
        if not name.endswith("serving.properties") or not node.text:
            continue
        line, column = node.begins if node.begins[0] else (node.line, node.column)
        settings, remarks = read_settings(reading.file, node.text, line=line, column=column)
        reading.remarks += remarks
        title = f"ConfigMap {one.value('metadata', 'name')}, {shorten(name, 60)}"
        yield DescribedServer(place=reading.place(node), name=title, properties=settings)
