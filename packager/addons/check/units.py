"""Files of `KEY=VALUE` below `[SECTION]`: units of systemd and Quadlet, supervisord's programs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePath

from packager.addons.check.engine_commands import container_servers, may_start, servers_in
from packager.addons.check.environment import unquoted
from packager.addons.check.shell import read_commands
from packager.addons.check.shell_variables import known_variables
from packager.addons.check.text_places import at
from packager.addons.check.values import DescribedServer, Setting, Word
from packager.core.positions import Place

SECTION = re.compile(r"[ \t]*\[([^\]\n]+)\]")
ENTRY = re.compile(r"[ \t]*([A-Za-z][\w-]*)[ \t]*=[ \t]*")
PREFIXES = "@-:+!"  # of systemd's ExecStart
QUADLET = "Container"
SYSTEMD = (".service", ".container")  # only a backslash continues a line; of others a blank does


def read_unit(file: str, text: str) -> tuple[DescribedServer, ...]:
    """Read the commands of every section, with its variables; a Quadlet's are an image's."""
    sections = [*_sections(file, text)]
    return tuple(server for name, entries in sections for server in _servers(name, entries))


def _servers(name: str, entries: list[tuple[str, str, Place]]) -> Iterator[DescribedServer]:
    env = tuple(
        setting
        for key, value, place in entries
        if key.lower() == "environment"
        for setting in _variables(value, place)
    )
    images = [(value, place) for key, value, place in entries if key == "Image"]
    if name == QUADLET and images:
        image, place = images[-1]
        found = {key: _words(value, where) for key, value, where in entries}
        yield from container_servers(
            place=place,
            image=image.strip(),
            entrypoint=found.get("Entrypoint", ()),
            arguments=found.get("Exec", ()),
            env=env,
        )
        return
    for _key, value, place in entries:
        command = value.lstrip(PREFIXES)
        if may_start(command):
            here = at(place.file, place.line, place.column + len(value) - len(command), 1)
            known = known_variables({one.name: one.value for one in env})
            for server in servers_in(read_commands(command, here, variables=known)):
                yield replace(server, env=(*env, *server.env))


def _words(value: str, place: Place) -> tuple[Word, ...]:
    commands = read_commands(value, at(place.file, place.line, place.column, 1))
    return tuple(word for command in commands for word in command.words)


def _variables(value: str, place: Place) -> Iterator[Setting]:
    """Yield `NAME=VALUE "NAME=VALUE of several words" …`, split at blanks or commas."""
    for word in _words(f": {value}", place)[1:]:
        for part in re.split(r",(?=\w+=)", word.text):
            name, equals, text = part.partition("=")
            if equals:
                yield Setting(name, unquoted(text) if word.known else None, place)


def _sections(file: str, text: str) -> Iterator[tuple[str, list[tuple[str, str, Place]]]]:
    """Yield each section's name, and its keys with values and where these begin."""
    name, entries = "", list[tuple[str, list[str], Place]]()
    joint = "\n" if PurePath(file).suffix.lower() in SYSTEMD else " \\\n"
    for number, line in enumerate(text.split("\n"), start=1):
        section, entry = SECTION.match(line), ENTRY.match(line)
        goes_on = bool(entries) and entries[-1][1][-1].endswith("\\")
        if entries and (goes_on or (line.strip() and section is None and entry is None)):
            is_comment = line.lstrip().startswith(("#", ";"))
            further = "\\" if is_comment and goes_on else line
            entries[-1][1].append(f"{chr(10) if goes_on else joint}{further}")
        elif section is not None:
            if entries:
                yield name, _joined(entries)
            name, entries = section[1], []
        elif entry is not None:
            entries.append((entry[1], [line[entry.end() :]], Place(file, number, entry.end() + 1)))
    if entries:
        yield name, _joined(entries)


def _joined(entries: list[tuple[str, list[str], Place]]) -> list[tuple[str, str, Place]]:
    return [(key, "".join(parts), place) for key, parts, place in entries]
