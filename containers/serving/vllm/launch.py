"""Entry point of a vLLM-family image: run the command in `command.json`, and become it.

`command.json` lies beside this file and holds `{"argv": [...], "env": {...}}`.
The arguments of the container are appended, so that `docker run IMAGE --port 9000`
overrides a flag.  The values in `env` are defaults: what the container's environment
sets, wins.  This directory goes onto PYTHONPATH, so that the server finds
`inputs_adapter`.

`PACKAGER_SPECULATION=off` drops the options of speculative decoding, so that the same
image can be measured without its draft.

Where `PACKAGER_COMPILED` names a directory, what was compiled ahead of time is put in
place first; `PACKAGER_COMPILED=off` leaves it alone.

The process is replaced, not wrapped: signals reach the server itself.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

EX_CONFIG = 78  # sysexits.h: something was found in an unconfigured or misconfigured state
COMMAND_NOT_FOUND = 127


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
    if (compiled := environment.get("PACKAGER_COMPILED", "off")) != "off":
        import compiled_cache  # beside this file where something was compiled

        compiled_cache.say(compiled_cache.take_compiled(Path(compiled), environment))
    try:
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        fail(f"cannot run {argv[0]!r}: {error.strerror}", "the base image must have it in its PATH")
        return COMMAND_NOT_FOUND


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
