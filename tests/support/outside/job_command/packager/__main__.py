"""`python -m packager [ACTION=VALUE]...`, as a runner starts it."""

import json
import os
import signal
import sys
import time
from pathlib import Path


def main() -> None:
    for word in sys.argv[1:]:
        action, equals, value = word.partition("=")
        if not equals:
            continue  # `--format json`
        do(action, value)


def do(action: str, value: str) -> None:
    if action == "print":
        write(sys.stdout, value)
    elif action == "say":
        write(sys.stderr, value)
    elif action == "begin":  # a line without its end
        sys.stderr.write(value)
        sys.stderr.flush()
    elif action == "sleep":
        time.sleep(float(value))
    elif action == "append":  # a line in a file, as a sign that this ran
        place, _, text = value.partition(":")
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(descriptor, f"{text}\n".encode())
    elif action == "wait":  # until the file is there
        while not Path(value).exists():
            time.sleep(0.02)
    elif action == "step":
        write(sys.stderr, json.dumps({"event": "step", **json.loads(value)}))
    elif action == "error":
        write(sys.stderr, json.dumps(json.loads(value), indent=2))
    elif action == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif action == "polite":  # to end as packager does where it is interrupted
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    elif action == "kill":  # itself
        os.kill(os.getpid(), int(value))
    elif action == "exit":
        sys.exit(int(value))
    elif action == "environment":
        shown = {"cwd": str(Path.cwd()), value: os.environ.get(value)}
        write(sys.stdout, json.dumps(shown))
    elif action == "argv":
        write(sys.stdout, json.dumps(sys.argv[1:]))
    else:
        sys.exit(f"unknown action {action!r}")


def write(stream, line):
    stream.write(f"{line}\n")
    stream.flush()


main()
