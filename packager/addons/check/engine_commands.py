"""Engines among commands: which words start one, in which shells and containers they stand.

Wrappers are not listed: an engine is found wherever its words stand in a command, and a word that
is a command line itself, as shells, multiplexers and schedulers are given one, is read as such.
`data/launchers.toml` has what starts an engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from packager.addons.check.shell import ShellCommand, read_commands
from packager.addons.check.text_places import inside
from packager.addons.check.values import DescribedServer, Edit, Remark, Setting, Word
from packager.core.documents import shorten
from packager.core.findings import Finding
from packager.core.positions import Place, Span
from packager.core.share import read_shipped

LAUNCHERS = Path(__file__).parent / "data" / "launchers.toml"
DEEPEST = 4  # scripts inside of scripts
DOCKER_SHM = "64m"  # docs.docker.com/reference/cli/docker/container/run; read 2026-11-30
RUNS = frozenset({"run", "create"})


@dataclass(frozen=True, slots=True)
class StartedEngine:
    """An engine's command: its family, and the words behind the command's own."""

    family: str
    arguments: tuple[Word, ...]
    takes_model: bool  # the first word that is not an option names the model
    version: str = ""  # by the program's name


@dataclass(frozen=True, slots=True)
class _Start:
    family: str
    words: tuple[re.Pattern[str], ...]
    names_model: bool


def find_start(words: Sequence[Word]) -> StartedEngine | None:
    """Find the engine that a command starts, behind whichever wrappers."""
    texts = [word.text for word in words]
    for index in range(len(words)):
        first = re.split(r"[/\\]", texts[index])[-1].lstrip("@!")  # of make, of notebooks
        for start in _starts():
            rest = texts[index + 1 : index + len(start.words)]
            found = start.words[0].fullmatch(first)
            if found is None or len(rest) + 1 < len(start.words):
                continue
            if all(one.fullmatch(text) for one, text in zip(start.words[1:], rest, strict=True)):
                arguments = tuple(words[index + len(start.words) :])
                version = found.groupdict().get("version") or ""
                return StartedEngine(start.family, arguments, start.names_model, version)
    return None


def other_server(family: str, words: Sequence[Word]) -> str:
    """Return the server of its own that a family's command starts by its options; "" for none."""
    given = [word.text.partition("=") for word in words if word.text.startswith("--")]
    names = {name[2:].replace("_", "-") for name, _, _ in given}
    pairs = {(name[2:], value) for name, _, value in given}
    pairs |= {(a.text[2:], b.text) for a, b in pairwise(words) if a.text.startswith("--")}
    for scope in _tables()["scopes"]:
        is_matching = names & {*scope["options"]} or pairs & scope.get("values", {}).items()
        if scope["family"] == family and is_matching:
            return str(scope["who"])
    return ""


def taken_before(family: str) -> frozenset[str]:
    """Return the options that a family's command takes for itself, before the engine's parser."""
    return frozenset(_tables()["taken"].get(family, ()))


def start_of(server: DescribedServer) -> StartedEngine | None:
    """Find the engine that a server starts, by its command or among an image's arguments."""
    return find_start(server.command) or find_start(server.arguments)


def may_start(text: str) -> bool:
    """Report whether a text may hold a command line that starts an engine, or an image of one."""
    return _may_start().search(text) is not None


def servers_in(commands: Iterable[ShellCommand], depth: int = 0) -> Iterator[DescribedServer]:
    """Yield a server for every command that starts an engine, or an image.

    A command that begins with an option is the rest of the one in the line before: the words that a
    shell loses there are reported for that server.
    """
    last: DescribedServer | None = None
    before: ShellCommand | None = None
    for command in commands:
        lost = command.words[0].text.startswith("-") if command.words else False
        ends = before is not None and (before.ends_line or command.ends_line)
        if last is not None and before is not None and lost and ends:
            last = replace(last, remarks=(*last.remarks, _lost(before, command)))
            before = command
            continue
        if last is not None:
            yield last
        found = [*_servers_of(command, depth)]
        yield from found[:-1]
        last, before = (found[-1] if found else None), command
    if last is not None:
        yield last


def _lost(before: ShellCommand, command: ShellCommand) -> Remark:
    first = command.words[0]
    message = (
        f"the command ends in line {before.end.line}, before {shorten(first.text, 60)}: "
        "the options from here on are lost"
    )
    hint = f"end line {before.end.line} with ` {before.escape}`"
    if not before.ends_line:
        hint += ", without the operator that ends the command"
    edit = Edit(place=before.end, old="", new=f" {before.escape}")
    if before.remarks or not before.ends_line:  # a fault there is reported, or it may be meant
        return Remark(first.place, Finding("error", "line-lost", message, hint))
    return Remark(first.place, Finding("error", "line-lost", message, hint), edit)


def container_servers(
    *,
    place: Place,
    image: str,
    entrypoint: tuple[Word, ...],
    arguments: tuple[Word, ...],
    env: tuple[Setting, ...],
    name: str = "",
    resources: tuple[Setting, ...] = (),
) -> Iterator[DescribedServer]:
    """Yield the servers of a container: scripts that its words hold are read."""
    words, starts = (*entrypoint, *arguments), find_start((*entrypoint, *arguments)) is not None
    found = [] if starts else [*_scripted(words, 0)]
    doubled = () if entrypoint or not (starts or found) else (*_doubled(image, words),)
    for server in found:
        further, remarks = (*env, *server.env), (*server.remarks, *doubled)
        yield replace(
            server,
            place=place,
            name=name,
            image=image,
            env=further,
            resources=resources,
            remarks=remarks,
        )
    whole = DescribedServer(
        place=place, name=name, image=image, env=env, resources=resources, remarks=doubled
    )
    if not found and (entrypoint or starts):
        yield replace(whole, command=words)
    elif not found:
        yield replace(whole, arguments=arguments)


def _doubled(image: str, words: Sequence[Word]) -> Iterator[Remark]:
    """Find a program that is named for an image which starts the engine by itself."""
    repository = re.split(r"[:@]", image.rpartition("/")[2])[0]
    for row in _tables()["entrypoints"]:
        if re.fullmatch(row["repository"], repository):
            first = shorten(words[0].text, 60)
            message = (
                f"the image starts `{row['program']}` itself, and {first} is an argument of it"
            )
            hint = "give the engine's options alone, or replace the image's entrypoint"
            yield Remark(words[0].place, Finding("error", "argument-refused", message, hint))


def _servers_of(command: ShellCommand, depth: int) -> Iterator[DescribedServer]:
    words, env = command.words, (*command.exported, *command.variables)
    remarks = tuple(command.remarks)
    if not words or _shows(words):
        return
    run = [*_run(words)]
    if run:
        yield from (replace(one, remarks=(*one.remarks, *remarks)) for one in run)
    elif find_start(words) is not None:
        command_words = (*words, *_from_input(words))
        yield DescribedServer(
            place=words[0].place,
            command=command_words,
            env=(*env, *_set_by(words)),
            remarks=remarks,
        )
    elif depth < DEEPEST:
        for server in _scripted(words, depth):
            further = (*env, *server.env)
            yield replace(server, env=further, remarks=(*server.remarks, *remarks))
    for text in command.inputs if depth < DEEPEST else ():
        if may_start(text.text):
            yield from servers_in(read_commands(text.text, inside(text)), depth + 1)


def _from_input(words: Sequence[Word]) -> Iterator[Word]:
    """Yield what stands for the words that xargs adds: only its input tells them."""
    for word in words:
        if word.text.rpartition("/")[2] == "xargs":
            yield Word("$@", word.place, known=False)


def _set_by(words: Sequence[Word]) -> Iterator[Setting]:
    """Yield what `env NAME=VALUE …` sets before the program's own words."""
    if words[0].text.rpartition("/")[2] != "env":
        return
    for word in words[1:]:
        name, equals, value = word.text.partition("=")
        if equals and name.isidentifier():
            yield Setting(name, value if word.known else None, word.place)
        elif not word.text.startswith("-"):
            return


def _scripted(words: Sequence[Word], depth: int) -> Iterator[DescribedServer]:
    """Yield the servers of words that are command lines, such as `sh -c SCRIPT ARG0 …`."""
    for index, word in enumerate(words):
        script = _value_of(word)
        if re.search(r"\S\s+\S", script.text) and may_start(script.text):
            behind = words[index + 2 :]
            commands = read_commands(script.text, inside(script), parameters=behind)
            yield from servers_in(commands, depth + 1)


def _value_of(word: Word) -> Word:
    """Return what an option's word gives it, `--wrap=SCRIPT`, or the word itself."""
    option = re.match(r"--?[A-Za-z][\w-]*=", word.text)
    if option is None:
        return word
    spans = (Span(max(one.index - option.end(), 0), one.place) for one in word.spans)
    return Word(word.text[option.end() :], word.place, word.known, tuple(spans))


def _shows(words: Sequence[Word]) -> bool:
    table = _tables()["shows"]
    first = next((word.text for word in words if word.text not in table["behind"]), "")
    return first.rpartition("/")[2] in table["programs"]


def _run(words: Sequence[Word]) -> Iterator[DescribedServer]:
    """Read `docker run OPTIONS IMAGE ARGUMENTS`."""
    runners = _tables()["containers"]["programs"]
    texts = [re.split(r"[/\\]", word.text)[-1] for word in words]
    runner = next((i for i, text in enumerate(texts) if text in runners), None)
    if runner is None:
        return
    run = next(
        (i for i in range(runner + 1, min(runner + 3, len(texts))) if texts[i] in RUNS), None
    )
    if run is None:
        return
    index = run + 1
    options: list[Setting] = []
    entrypoint: tuple[Word, ...] = ()
    env: list[Setting] = []
    while index < len(words) and words[index].text.startswith("-"):
        word = words[index]
        name, equals, value = word.text.partition("=")
        given = Word(value, word.place, word.known)
        index += 1
        if not equals and _is_bare(name):
            options.append(Setting(name, "true", word.place))
            continue
        if not equals and index < len(words):
            given = words[index]
            index += 1
        if name in {"-e", "--env"}:
            env.append(_variable(given))
        elif name == "--entrypoint":
            entrypoint = (given,)
        else:
            options.append(Setting(name, given.text if given.known else None, word.place))
    if index == len(words):
        message = "the command names no image: what its line ends lose is not given to it"
        hint = "end each line but the last with the character that continues it"
        lost = Remark(words[0].place, Finding("error", "line-lost", message, hint))
        yield DescribedServer(place=words[0].place, remarks=(lost,))
    else:
        yield from container_servers(
            place=words[0].place,
            image=words[index].text,
            entrypoint=entrypoint,
            arguments=tuple(words[index + 1 :]),
            env=tuple(env),
            resources=(*_resources(options, words[0].place),),
        )


def _resources(options: Sequence[Setting], place: Place) -> Iterator[Setting]:
    """Yield what `docker run` gives: devices that are counted, and shared memory."""
    given = {setting.name: setting for setting in options}
    gpus = given.get("--gpus")
    if gpus is not None and gpus.value is not None:
        value = gpus.value.strip("'\"").removeprefix("device=")
        if value.isdecimal() and "device=" not in gpus.value:
            yield Setting("devices", value, gpus.place)
        elif "device=" in gpus.value:
            yield Setting("devices", str(len(value.split(","))), gpus.place)
    shared = given.get("--shm-size") or given.get("--ipc")
    mounts = [one for one in options if "/dev/shm" in (one.value or "")]
    if not mounts:
        yield shared_memory(shared, place)


def shared_memory(given: Setting | None, place: Place) -> Setting:
    """Return the size of /dev/shm that a container sets, or Docker's default."""
    return Setting("shm", given.value if given else DOCKER_SHM, given.place if given else place)


def _is_bare(name: str) -> bool:
    """Report whether an option takes no value; short ones may stand together, as in `-it`."""
    bare = _tables()["containers"]["bare"]
    if name.startswith("--"):
        return name in bare
    return bool(name[1:]) and all(f"-{letter}" in bare for letter in name[1:])


def _variable(word: Word) -> Setting:
    name, equals, value = word.text.partition("=")
    return Setting(name, value if equals and word.known else None, word.place)


@cache
def _tables() -> Mapping[str, Any]:
    return read_shipped(LAUNCHERS)


@cache
def _starts() -> tuple[_Start, ...]:
    return tuple(
        _Start(
            row["family"],
            tuple(re.compile(one) for one in (row["program"], *row.get("behind", ()))),
            row.get("names_model", False),
        )
        for row in _tables()["starts"]
    )


@cache
def _may_start() -> re.Pattern[str]:
    """Return what begins with an engine's words or starts a container; whether it does is read."""
    found = [r"[\s'\",\]\[]+".join((one, *row)) for one, row in _texts()]
    programs = "|".join(map(re.escape, _tables()["containers"]["programs"]))
    return re.compile(
        rf"(?<![\w.])(?:{'|'.join(found)}|(?:{programs})\s+(?:\w+\s+)?(?:{'|'.join(RUNS)}))(?![\w])"
    )


def _texts() -> Iterator[tuple[str, tuple[str, ...]]]:
    for row in _tables()["starts"]:
        yield row["program"].replace("?P<version>", "?:"), tuple(row.get("behind", ()))
