"""A Dockerfile's last stage: its base image, variables and command."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packager.addons.check.engine_commands import container_servers
from packager.addons.check.shell import read_commands
from packager.addons.check.text_places import at
from packager.addons.check.values import DescribedServer, Remark, Setting, Word
from packager.core.documents import NotStrict, parse_json, shorten
from packager.core.findings import Finding
from packager.core.positions import Place
from packager.core.suggestions import guess

INSTRUCTION = re.compile(r"\s*([A-Za-z]+)\s+(.*)", re.DOTALL)
FORM = re.compile(r"\s*\[.*\]\s*", re.DOTALL)


def read_dockerfile(file: str, text: str) -> tuple[tuple[DescribedServer, ...], tuple[Remark, ...]]:
    """Read what the image's container is started with."""
    image = ""
    env: dict[str, Setting] = {}
    entrypoint: tuple[Word, ...] = ()
    command: tuple[Word, ...] = ()
    place = Place(file)
    remarks: list[Remark] = []
    stages: dict[str, str] = {}
    for number, name, rest, column in _instructions(text):
        here = Place(file, number, column)
        if name == "FROM":
            base = [word for word in rest.split() if not word.startswith("--")]
            image = stages.get(base[0], base[0]) if base else ""
            if len(base) == 3 and base[1].lower() == "as":
                stages[base[2]] = image
            place, env, entrypoint, command = here, {}, (), ()
        elif name == "ENV":
            for setting in _variables(rest, here):
                env[setting.name] = setting
        elif name == "ENTRYPOINT":
            entrypoint, command = _words(rest, here), ()
        elif name == "CMD":
            command = _words(rest, here)
        elif name not in KNOWN:
            message = f"{shorten(name, 40)} is not an instruction of a Dockerfile"
            hint = guess(name, KNOWN, "an instruction that goes on needs a \\ in the line above")
            remarks.append(Remark(here, Finding("error", "line-unreadable", message, hint)))
    if not image:
        return (), tuple(remarks)
    servers = container_servers(
        place=place,
        image=image,
        entrypoint=entrypoint,
        arguments=command,
        env=tuple(env.values()),
    )
    return tuple(servers), tuple(remarks)


KNOWN = frozenset(
    [
        "FROM",
        "ENV",
        "ENTRYPOINT",
        "CMD",
        "RUN",
        "COPY",
        "ADD",
        "ARG",
        "LABEL",
        "EXPOSE",
        "WORKDIR",
        "USER",
        "VOLUME",
        "SHELL",
        "STOPSIGNAL",
        "HEALTHCHECK",
        "ONBUILD",
        "MAINTAINER",
    ]
)


def _instructions(text: str) -> Iterator[tuple[int, str, str, int]]:
    """Yield each instruction's line, name, text and the column of its text."""
    begun, collected = 0, ""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        begun = begun or number
        collected += line + "\n"
        if line.rstrip().endswith("\\"):
            continue
        match = INSTRUCTION.fullmatch(collected.rstrip("\n"))
        if match:
            yield begun, match[1].upper(), match[2], match.start(2) + 1
        begun, collected = 0, ""


def _variables(rest: str, place: Place) -> Iterator[Setting]:
    first = rest.split(None, 1)
    if first and "=" not in first[0]:  # ENV NAME VALUE, of old
        yield Setting(first[0], first[1].strip() if len(first) > 1 else "", place)
        return
    # Assignments belong to the command after them: `:` is one without an effect.
    for command in read_commands(f"{rest} :", at(place.file, place.line, place.column, 1)):
        yield from command.variables


def _words(rest: str, place: Place) -> tuple[Word, ...]:
    if FORM.fullmatch(rest):
        try:
            listed = parse_json(rest.replace("\\\n", "\n").encode())
        except NotStrict:
            listed = None
        if isinstance(listed, list):
            return tuple(Word(str(one), place) for one in listed)
    commands = read_commands(rest, at(place.file, place.line, place.column, 1))
    return tuple(word for command in commands for word in command.words)
