"""Engines among commands: which words start one, and what an image's own command is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from packager.check.shell import Command
from packager.check.values import Server, Setting, Word
from packager.core.values import dataclass

# Words, the first of them by its last path component, that start a server.
STARTS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("vllm", "serve"), "vllm"),
    (("-m", "vllm.entrypoints.openai.api_server"), "vllm"),
    (("-m", "vllm.entrypoints.api_server"), "vllm"),
    (("vllm.entrypoints.openai.api_server",), "vllm"),
    (("sglang", "serve"), "sglang"),
    (("-m", "sglang.launch_server"), "sglang"),
    (("sglang.launch_server",), "sglang"),
    (("text-generation-launcher",), "tgi"),
    (("optimum-cli", "neuron", "serve"), "neuron"),
)
RUNNERS = ("docker", "podman", "nerdctl", "finch")

# Options of `docker run` that take no value.
BARE = frozenset(
    [
        "-d",
        "--detach",
        "-i",
        "--interactive",
        "-t",
        "--tty",
        "-it",
        "-ti",
        "-itd",
        "-dit",
        "-P",
        "--publish-all",
        "-q",
        "--quiet",
        "--rm",
        "--privileged",
        "--init",
        "--read-only",
        "--no-healthcheck",
        "--oom-kill-disable",
        "--sig-proxy",
        "--disable-content-trust",
    ]
)


@dataclass(frozen=True, slots=True)
class Started:
    """An engine's command: its family, and the words behind the command's own."""

    family: str
    arguments: tuple[Word, ...]
    takes_model: bool  # the first word that is not an option names the model


def find_start(words: Sequence[Word]) -> Started | None:
    """Find the engine that a command starts, behind `exec`, `env`, `nohup` and the like."""
    texts = [word.text for word in words]
    for index in range(len(words)):
        first = texts[index].rpartition("/")[2]
        for start, family in STARTS:
            found = (first, *texts[index + 1 : index + len(start)])
            if found == start:
                takes_model = start[-1] == "serve" and family != "neuron"
                return Started(family, tuple(words[index + len(start) :]), takes_model)
    return None


def servers_in(commands: Sequence[Command]) -> Iterator[Server]:
    """Yield a server for every command that starts an engine, or an image."""
    found = [command for command in commands if command.words]
    for command in found:
        env = (*command.exported, *command.variables)
        server = _run(command.words) or _started(command.words, env)
        if server is not None:
            yield server


def scripts_in(words: Sequence[Word]) -> tuple[Word, ...]:
    """Return the scripts that a shell is given to run: `sh -c SCRIPT`."""
    texts = [word.text for word in words]
    if not texts or texts[0].rpartition("/")[2] not in {"sh", "bash", "dash", "ash", "zsh"}:
        return ()
    for index, text in enumerate(texts[1:], start=1):
        if text.startswith("-") and not text.startswith("--") and text.endswith("c"):
            return tuple(words[index + 1 : index + 2])
        if not text.startswith("-"):
            break
    return ()


def _started(words: Sequence[Word], env: tuple[Setting, ...]) -> Server | None:
    if find_start(words) is None:
        return None
    return Server(place=words[0].place, command=tuple(words), env=env)


def _run(words: Sequence[Word]) -> Server | None:
    """Read `docker run OPTIONS IMAGE ARGUMENTS`."""
    texts = [word.text.rpartition("/")[2] for word in words]
    runner = next((i for i, text in enumerate(texts[:4]) if text in RUNNERS), None)
    if runner is None or "run" not in texts[runner + 1 : runner + 3]:
        return None
    index = texts.index("run", runner) + 1
    env: list[Setting] = []
    entrypoint: tuple[Word, ...] = ()
    while index < len(words) and words[index].text.startswith("-"):
        word = words[index]
        name, equals, value = word.text.partition("=")
        given = Word(value, word.place, word.known)
        index += 1
        if not equals and name in BARE:
            continue
        if not equals and index < len(words):
            given = words[index]
            index += 1
        if name in {"-e", "--env"}:
            env.append(_variable(given))
        elif name == "--entrypoint":
            entrypoint = (given,)
    if index >= len(words):
        return None
    image, rest = words[index], tuple(words[index + 1 :])
    if entrypoint or find_start(rest):
        return Server(
            place=words[0].place, image=image.text, command=(*entrypoint, *rest), env=tuple(env)
        )
    return Server(place=words[0].place, image=image.text, arguments=rest, env=tuple(env))


def _variable(word: Word) -> Setting:
    name, equals, value = word.text.partition("=")
    return Setting(name, value if equals and word.known else None, word.place)
