"""Containers and commands at any place: values of charts, tasks, jobs, workflows.

This module knows no schema.  A mapping with an image is a container, a list of words or a text
that starts an engine is a command; what is under the keys of a container belongs to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from packager.addons.check.engine_commands import (
    container_servers,
    find_start,
    may_start,
    servers_in,
)
from packager.addons.check.shell import read_commands
from packager.addons.check.targets import read_image
from packager.addons.check.text_places import inside
from packager.addons.check.values import DescribedServer, Setting, Word
from packager.core.positions import Place
from packager.core.yaml_nodes import YamlNode, spans_in

IMAGES = ("image", "Image", "imageUri", "container_image", "docker_image", "image_id")
COMMANDS = ("entrypoint", "entryPoint", "entrypointCommand", "command", "Command", "cmd")
ARGUMENTS = ("args", "arguments", "extraArgs", "extra_args", "containerArgs", "Args")
VARIABLES = ("env", "envs", "environment", "Environment", "environment_variables", "extraEnv")
DEVICES = frozenset({"nvidia.com/gpu", "amd.com/gpu"})
SCALARS = frozenset({"text", "int", "float", "bool", "null"})


def read_containers(file: str, documents: Sequence[YamlNode]) -> Iterator[DescribedServer]:
    """Yield the servers of documents of any shape."""
    for document in documents:
        yield from servers_under(document, file)


def servers_under(node: YamlNode, file: str, name: str = "") -> Iterator[DescribedServer]:
    """Yield the servers in a value and below it; `name` is its key."""
    if node.type == "list":
        words = _words(node, file)
        if find_start(words) is not None:
            place = Place(file, node.line, node.column)
            yield from container_servers(
                place=place, image="", entrypoint=(), arguments=words, env=(), name=name
            )
            return
        for one in node.items:
            yield from servers_under(one, file, name)
    elif node.type == "mapping":
        yield from _mapping(node, file, name)
    elif node.type == "text" and may_start(node.text):
        yield from servers_in(read_commands(node.text, inside(_word(node, file))))


def _mapping(node: YamlNode, file: str, name: str) -> Iterator[DescribedServer]:
    entries, image = node.entries(), _image_of(node)
    command = _first(entries, COMMANDS)
    arguments = _first(entries, ARGUMENTS)
    parts = [_words(one, file) if one is not None else () for one in (command, arguments)]
    is_server = bool(image) and (any(parts) or read_image(image) is not None)
    rest = entries.items()
    if is_server or find_start((*parts[0], *parts[1])) is not None:
        place = Place(file, node.line, node.column)
        title = node.value("name") or name
        env = tuple(_env(_first(entries, VARIABLES), file))
        # Where a list is no entry point by its name, an image's own command gets it.
        is_entry = command is not None and bool(parts[1])
        entrypoint, words = (parts[0], parts[1]) if is_entry else ((), (*parts[0], *parts[1]))
        for server in container_servers(
            place=place, image=image, entrypoint=entrypoint, arguments=words, env=env, name=title
        ):
            yield replace(server, resources=tuple(devices_in(node, file)))
        taken = (command, arguments)
        rest = {key: value for key, value in rest if value not in taken}.items()
    for key, value in rest:
        yield from servers_under(value, file, key)


def devices_in(node: YamlNode, file: str) -> Iterator[Setting]:
    """Yield the number of devices that a container's limits, or a compose file's, count."""
    for path in (("resources", "limits"), ("resources", "requests")):
        limits = node.get(*path)
        for key, value in limits.pairs if limits is not None else ():
            if key.text in DEVICES and value.text.isdecimal():
                yield Setting("devices", value.text, Place(file, value.line, value.column))
                return
    for one in node.listed("deploy", "resources", "reservations", "devices"):
        ids, count = one.listed("device_ids"), one.get("count")
        if ids:
            yield Setting("devices", str(len(ids)), Place(file, one.line, one.column))
        elif count is not None and count.text.isdecimal():
            yield Setting("devices", count.text, Place(file, count.line, count.column))


def _first(entries: dict[str, YamlNode], keys: Sequence[str]) -> YamlNode | None:
    return next((entries[key] for key in keys if key in entries), None)


def _image_of(node: YamlNode) -> str:
    """Return the image of a mapping: one text, or a repository and a tag."""
    entries = node.entries()
    image = _first(entries, IMAGES)
    if image is None or image.type == "mapping":
        parts = image if image is not None else node
        repository, tag = parts.value("repository"), parts.value("tag")
        registry = parts.value("registry")
        whole = f"{registry}/{repository}" if registry else repository
        return f"{whole}:{tag}" if whole and tag else whole
    return image.text if image.type == "text" else ""


def _words(node: YamlNode, file: str) -> tuple[Word, ...]:
    """Return the words of a list, or of a text that is split as a shell would."""
    if node.type == "text":
        commands = read_commands(node.text.replace("\n", " "), inside(_word(node, file)))
        return tuple(one for command in commands for one in command.words)
    if any(one.type not in SCALARS for one in node.items):
        return ()
    return tuple(_word(one, file) for one in node.items)


def _word(node: YamlNode, file: str) -> Word:
    known = "${" not in node.text and "{{" not in node.text  # filled in by the file's reader
    place = Place(file, node.line, node.column)
    return Word(node.text, place, known, spans_in(node, file))


def _env(node: YamlNode | None, file: str) -> Iterator[Setting]:
    """Yield variables of a mapping, of a list of names with values, or of NAME=VALUE texts."""
    for key, value in node.pairs if node is not None else ():
        text = value.text if value.type in SCALARS else None
        yield Setting(key.text, text, Place(file, key.line, key.column))
    for one in node.items if node is not None else ():
        place = Place(file, one.line, one.column)
        if one.type == "text":
            name, equals, text = one.text.partition("=")
            yield Setting(name, text if equals else None, place)
        elif one.value("name"):
            given = one.get("value")
            yield Setting(one.value("name"), given.text if given is not None else None, place)
