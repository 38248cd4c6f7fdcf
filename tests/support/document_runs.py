"""Run the commands of a page in a directory of its own, and compare or rewrite what it shows."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.commandline import Packager, packager_in
from tests.support.documents import Block, Command, agrees, blocks, elided
from tests.support.doubles.fake_hub import FakeHub
from tests.support.doubles.registry import FakeRegistry
from tests.support.places import ROOT
from tests.support.published_hub import publish
from tests.support.shapes import models

# What pages call the directory of their commands, the cache, and a registry of one's own.
DIRECTORY = "/home/me/models"
CACHE = "/home/me/.cache/packager"
REGISTRY = "localhost:5000"
PORT = 8080  # of servers
LONGEST_S = 1500.0  # of a command: compiling and training on a busy machine
HUB_MODEL = "acme/tiny-llama"  # on the hub, besides published models
FORMS = ("127.0.0.1:{}", "--port {}", "-p {}:")  # how commands and output name it
_SHELL = re.compile(r"[|<>;&$`*?()\n]|^\w+=")
FAILED = re.compile(r"\berror\b")


@dataclass
class Page:
    """A page whose commands run one after the other."""

    path: Path
    packager: Packager
    directory: Path
    environment: dict[str, str]
    names: dict[str, str]  # as the page has them → as they are here
    failures: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    rewritten: list[tuple[int, int, list[str]]] = field(default_factory=list)

    def run_block(self, block: Block, below: Block | None) -> None:
        """Write a file, or run the commands and keep what differs."""
        if block.stage == "files":
            file = self.directory / block.title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self._here(block.text), encoding="utf-8")
        elif block.language == "python":
            self._run_script(block, below)
        else:
            for command in block.commands():
                self._run_command(block, command)

    def update(self) -> None:
        """Write the page with the output that its commands had."""
        lines = self.path.read_text(encoding="utf-8").split("\n")
        for first, last, new in sorted(self.rewritten, reverse=True):
            lines[first:last] = new
        self.path.write_text("\n".join(lines), encoding="utf-8")

    def _run_command(self, block: Block, command: Command) -> None:
        status, printed = self.run(command.text)
        shown = command.shown
        if status and not (shown and any(FAILED.search(line) for line in shown)):
            told = "\n".join(printed[-12:])
            self.failures.append(f"{block.where}: status {status}: {command.text}\n{told}")
            return
        if shown is None or agrees(shown, printed, block.varies):
            return
        new = elided(shown, printed, block.varies)
        self._differs(block, shown, new, (command.first, command.last))

    def _run_script(self, block: Block, below: Block | None) -> None:
        status, printed = self._run_program([sys.executable, "-c", block.text])
        shown = below.lines if below and below.language == "text" else None
        if status:
            self.failures.append(f"{block.where}: status {status}\n" + "\n".join(printed[-12:]))
        elif below and shown is not None and not agrees(shown, printed, block.varies):
            place = (below.line, below.line + len(shown))
            self._differs(block, shown, elided(shown, printed, block.varies), place)

    def _differs(
        self, block: Block, shown: tuple[str, ...], new: list[str], place: tuple[int, int]
    ) -> None:
        diff = difflib.unified_diff(shown, new, "the page", "the command", lineterm="", n=1)
        self.differences.append("\n".join([block.where, *diff]))
        self.rewritten.append((*place, [f"{block.indent}{line}".rstrip() for line in new]))

    def run(self, text: str) -> tuple[int, list[str]]:
        """Run a command as a shell would; settings that it exports are there for the next."""
        text = self._here(text)
        plain = text.replace("\\\n", " ")
        if exported := re.fullmatch(r"export (\w+)=(\S+|\"[^\"$]*\")(?: +#.*)?", plain):
            self.environment[exported[1]] = exported[2].strip('"')
            return 0, []
        if not _SHELL.search(plain):
            words = shlex.split(plain, comments=True)
            if words and words[0] == "packager":
                done = self.packager(
                    *words[1:], cwd=self.directory, env=self.environment, merged=True
                )
                return done.status, self._lines(done.out)
        return self._run_program(["bash", "-e", "-o", "pipefail", "-c", text])

    def _run_program(self, words: list[str]) -> tuple[int, list[str]]:
        done = subprocess.run(
            words,
            cwd=self.directory,
            env={**os.environ, **self.environment, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LONGEST_S,
        )
        return done.returncode, self._lines(done.stdout)

    def _here(self, text: str) -> str:
        for shown, real in self.names.items():
            text = text.replace(shown, real)
        return text

    def _lines(self, text: str) -> list[str]:
        for shown, real in self.names.items():
            text = text.replace(real, shown)
        lines = [line.rstrip() for line in text.split("\n")]
        while lines and not lines[-1]:
            lines.pop()
        return lines


@contextlib.contextmanager
def opened(path: Path, directory: Path, environment: Mapping[str, str]) -> Iterator[Page]:
    """Prepare a page: the examples, a hub with the models that it names, an empty registry."""
    (directory / "examples").symlink_to(ROOT / "examples")
    programs = directory.parent / "bin"
    programs.mkdir()
    program = programs / "packager"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m packager "$@"\n')
    program.chmod(0o755)
    text = path.read_text(encoding="utf-8")
    port = free_port()
    with FakeHub() as hub, FakeRegistry() as registry:
        hub.add(HUB_MODEL, ROOT / "examples/tiny-llama")
        for name in models():
            if re.search(rf"{re.escape(name)}(?![\w.-])", text):
                publish(hub, name)
        places = {
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(directory.parent / "hub"),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "COLUMNS": "100",
            "LC_ALL": "C.UTF-8",
        }
        yield Page(
            path=path,
            packager=packager_in(directory, timeout_s=LONGEST_S),
            directory=directory,
            environment={**places, **environment},
            names={
                DIRECTORY: str(directory),
                CACHE: os.environ["PACKAGER_CACHE"],
                REGISTRY: registry.host,
                **{form.format(PORT): form.format(port) for form in FORMS},
            },
        )


def free_port() -> int:
    """Return a port that nobody listens on now, of as many digits as `PORT`, as columns have it."""
    for port in range(8100 + os.getpid() % 1000, 10_000):
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port from 8100 to 9999 is free")


def run_page(page: Page, stages: frozenset[str]) -> None:
    """Run the blocks of these stages, in order."""
    found = blocks(page.path)
    for block, below in zip(found, [*found[1:], None], strict=True):
        if block.stage in stages:
            page.run_block(block, below)
