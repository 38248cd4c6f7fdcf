"""Entry point of a vLLM-family image: run the command in `command.json`, and watch over it.

`command.json` lies beside this file and holds `{"argv": [...], "env": {...}}`.
The arguments of the container are appended, so that `docker run IMAGE --port 9000`
overrides a flag.  The values in `env` are defaults: what the container's environment
sets, wins.  This directory goes onto PYTHONPATH, so that the server finds
`inputs_adapter`, and every Python process of an engine on processors `sitecustomize`.

`PACKAGER_SPECULATION=off` drops the options of speculative decoding, so that the same
image can be measured without its draft.

Where `PACKAGER_COMPILED` names a directory, what was compiled ahead of time is put in
place first; `PACKAGER_COMPILED=off` leaves it alone.

The launcher stays, as the first process of the container: it passes signals on, reaps
processes that lost their parent, and ends with the server's status.  A server that ends
with status 0 although nobody asked it to stop has lost its engine: vLLM then shuts down
as if it had been told to.  The launcher ends with `SERVER_GONE` there, so that whoever
restarts failed containers restarts this one.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

EX_CONFIG = 78  # sysexits.h: something was found in an unconfigured or misconfigured state
COMMAND_NOT_FOUND = 127
SERVER_GONE = 70  # sysexits.h: an internal software error
KILLED = 128  # plus the signal's number, as shells have it

STOPPING = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP))
FORWARDED = STOPPING | {signal.SIGUSR1, signal.SIGUSR2}
BY_THE_KERNEL = 0x80  # SI_KERNEL: a terminal's signals, which its whole process group gets
ENDS_BY_ITSELF = frozenset(("-h", "--help", "-v", "--version"))  # and that is no fault


def main(arguments: Sequence[str]) -> int:
    directory = Path(__file__).resolve().parent
    path = directory / "command.json"
    try:
        argv, defaults = read_command(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return fail(f"{path}: {error}", "this file is written by packager; build the image again")
    argv = [*argv, *own_arguments(arguments)]
    environment = make_environment(os.environ, defaults, directory)
    if environment.get("PACKAGER_SPECULATION") == "off":
        argv = without_speculation(argv)
    if (directory / "compiled_cache.py").is_file():  # where something was compiled
        import compiled_cache

        compiled_cache.prepare(environment)
    if any(word.partition("=")[0] in ENDS_BY_ITSELF for word in arguments):
        return become(argv, environment)
    return watch(lambda: become(argv, environment))


def become(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Replace this process with the command; return a status only where that fails."""
    try:
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        fail(f"cannot run {argv[0]!r}: {error.strerror}", "the base image must have it in its PATH")
        return COMMAND_NOT_FOUND


def watch(become_server: Callable[[], int]) -> int:
    """Run the server in a child process; return the status to end with.

    Signals wait until they are asked for, so that none is lost before the child is there.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # who ignores it cannot read statuses
    before = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED | {signal.SIGCHLD})
    server = os.fork()
    if server == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return become_server()
    asked_to_stop = False
    while True:
        received = signal.sigwaitinfo(FORWARDED | {signal.SIGCHLD})
        if received.si_signo == signal.SIGCHLD:
            status = reap(server)
            if status is not None:
                return status_of(status, asked_to_stop=asked_to_stop)
            continue
        asked_to_stop = asked_to_stop or received.si_signo in STOPPING
        if received.si_code != BY_THE_KERNEL:
            os.kill(server, received.si_signo)


def reap(server: int) -> int | None:
    """Take the statuses of all children that ended; return the server's when it is among them."""
    found = None
    while True:
        try:
            child, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if child == 0:
            return found
        if child == server:
            found = os.waitstatus_to_exitcode(status)


def status_of(code: int, *, asked_to_stop: bool) -> int:
    """Convert how the server ended, -N for signal N, to the status of the container."""
    if code < 0:
        return KILLED - code
    if code == 0 and not asked_to_stop:
        print(
            "error: the server ended although nobody asked it to stop: its engine died\n"
            "hint: the engine's last words are above",
            file=sys.stderr,
        )
        return SERVER_GONE
    return code


def read_command(text: str) -> tuple[list[str], dict[str, str]]:
    """Read `argv` and `env`; a ValueError says what is wrong with them."""
    document = json.loads(text)
    if not isinstance(document, dict):
        raise ValueError("must be an object with 'argv' and 'env'")
    argv, env = document.get("argv"), document.get("env", {})
    if not isinstance(argv, list) or not argv or not all(isinstance(item, str) for item in argv):
        raise ValueError("'argv' must be a list of strings, and not empty")
    if not isinstance(env, dict) or not all(isinstance(value, str) for value in env.values()):
        raise ValueError("'env' must be an object of strings")
    return argv, env


def own_arguments(arguments: Sequence[str]) -> list[str]:
    """The container's arguments without the `serve` that SageMaker runs every image with."""
    return list(arguments[1:] if arguments[:1] == ["serve"] else arguments)


def without_speculation(argv: Sequence[str]) -> list[str]:
    """Leave out every `--speculative-…` and its value, as vLLM and SGLang spell them."""
    kept: list[str] = []
    in_option = False
    for word in argv:
        if word.replace("_", "-").startswith("--speculative-"):
            in_option = "=" not in word
        elif in_option and not word.startswith("--"):
            in_option = False
        else:
            in_option = False
            kept.append(word)
    return kept


def make_environment(
    current: Mapping[str, str], defaults: Mapping[str, str], directory: Path
) -> dict[str, str]:
    environment = {**defaults, **current}
    paths = [str(directory), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return environment


def fail(message: str, hint: str) -> int:
    print(f"error: {message}\nhint: {hint}", file=sys.stderr)
    return EX_CONFIG


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
