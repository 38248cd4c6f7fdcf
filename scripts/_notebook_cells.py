"""Run the cells of a notebook as they are, and write what its clients asked of which service.

The program of `scripts/run-notebooks` in the environment of an SDK: `_notebook_cells.py PLAN OUT`.
Cells run in IPython, in one namespace, and a failing one does not end the run.  What installs
packages is counted and left out; pauses are cut short; models of the hub come from loopback.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

HUB = "https://huggingface.co/"
INSTALLS = re.compile(r"^\s*(sudo\s+)?(\S*python3?\s+-m\s+)?(pip3?|conda|apt|apt-get|yum)\s")
LONGEST_PAUSE_S = 0.25
POLLS = ("Describe", "List", "Get", "Filter")
JOBS = ("OptimizationJob", "AIBenchmarkJob", "AIRecommendationJob")
ENDED = ("completed", "failed", "stopped")
TOLD = 300  # characters of an error


class Journal:
    """What cells asked, and how they ended."""

    def __init__(self) -> None:
        self.cell = -1
        self.asked: list[dict[str, Any]] = []
        self.left_out: list[dict[str, Any]] = []
        self.commands: list[dict[str, Any]] = []
        self.cells: list[dict[str, Any]] = []
        self.jobs: list[tuple[str, str]] = []  # kind and name of those that were made
        self.waits = False  # for jobs: not a cell's own call

    def ask(self, service: str, operation: str, parameters: Any, answer: str) -> None:
        if self.waits:
            return
        kind = operation.removeprefix("Create")
        if kind in JOBS and kind != operation and not answer:
            self.jobs.append((kind, parameters[f"{kind}Name"]))
        row = {
            "cell": self.cell,
            "service": service,
            "operation": operation,
            "parameters": plain(parameters),
            "answer": answer,
        }
        if operation.startswith(POLLS) and row in self.asked[-4:]:
            return  # a loop that waits
        self.asked.append(row)

    def install(self, words: str) -> bool:
        """Count a command that installs; say whether it is one."""
        if not INSTALLS.match(words):
            return False
        self.left_out.append({"cell": self.cell, "why": "installs"})
        return True


def plain(value: Any) -> Any:
    """Return parameters as JSON: of bodies and files only what kind of thing they are."""
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    return f"<{type(value).__name__}>"


def record_calls(journal: Journal, images: dict[str, str]) -> None:
    """Write down each call of a boto3 client; let the stand-in have the images' names."""
    import botocore.client

    send = botocore.client.BaseClient._make_api_call
    known: set[str] = set()

    def call(client: Any, operation: str, parameters: Any) -> Any:
        service = client.meta.service_model.service_name
        for name in images_in(parameters) - known:
            known.add(name)
            stand_in(name, images)
        try:
            answer = send(client, operation, parameters)
        except Exception as error:
            response = getattr(error, "response", None) or {}
            code = response.get("Error", {}).get("Code", type(error).__name__)
            journal.ask(service, operation, parameters, f"{code}: {error}"[:TOLD])
            raise
        journal.ask(service, operation, parameters, "")
        return answer

    botocore.client.BaseClient._make_api_call = call


def images_in(value: Any) -> set[str]:
    """Return the images that a request names."""
    if isinstance(value, dict):
        own = {one for name, one in value.items() if name in ("Image", "ImageUri")}
        return own.union(*map(images_in, value.values())) if value else own
    return set().union(*map(images_in, value)) if isinstance(value, (list, tuple)) else set()


def stand_in(name: Any, images: dict[str, str]) -> None:
    """Tag the stand-in image with the name of an AWS image that the Engine lacks."""
    if not images or not isinstance(name, str) or "@" in name:
        return
    docker = ["docker", "--host", images["engine"]]
    look = subprocess.run([*docker, "image", "inspect", name], capture_output=True)
    if look.returncode != 0:
        subprocess.run([*docker, "tag", images["stand_in"], name], capture_output=True)


def shorten_pauses() -> None:
    """Let no pause of this process take long: against AWS they take up to a minute."""
    pause = time.sleep
    time.sleep = lambda seconds: pause(min(seconds, LONGEST_PAUSE_S))


def answer_for_hub(address: str) -> None:
    """Send what SDKs read of the hub, by an address of their own, to the one on loopback."""
    original = urllib.request.urlopen

    def urlopen(asked: Any, *arguments: Any, **options: Any) -> Any:
        url = asked if isinstance(asked, str) else asked.full_url
        if url.startswith(HUB):
            asked = address + "/" + url.removeprefix(HUB).replace("/raw/", "/resolve/")
        return original(asked, *arguments, **options)

    urllib.request.urlopen = urlopen


def leave_out_installs(journal: Journal, shell: Any) -> None:
    """Count what installs packages, by a magic, a shell's line or a process; run it never."""

    def install(line: str) -> None:
        journal.install(f"pip {line}")

    for magic in ("pip", "conda", "uv"):
        shell.register_magic_function(install, "line", magic)
    run = shell.system

    def system(words: str) -> Any:
        words = shell.var_expand(words, depth=1)
        if journal.install(words):
            return None
        journal.commands.append({"cell": journal.cell, "command": words})
        return run(words)

    shell.system = system
    for name in ("run", "check_call", "check_output", "call"):
        setattr(subprocess, name, without_installs(journal, getattr(subprocess, name)))


def without_installs(journal: Journal, run: Callable[..., Any]) -> Callable[..., Any]:
    def call(words: Any, *arguments: Any, **options: Any) -> Any:
        line = " ".join(map(str, words)) if isinstance(words, (list, tuple)) else str(words)
        if journal.install(line):
            return subprocess.CompletedProcess(words, 0, b"", b"")
        return run(words, *arguments, **options)

    return call


def wait_for_jobs(journal: Journal, within_s: float) -> None:
    """Wait for jobs, as a reader does before running the next cell."""
    import boto3

    client, journal.waits = boto3.client("sagemaker"), True
    began = time.monotonic()
    while journal.jobs and time.monotonic() < began + within_s:
        kind, name = journal.jobs[-1]
        names = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=AI)(?=[A-Z])", "_", kind).lower()
        try:
            found = getattr(client, f"describe_{names}")(**{f"{kind}Name": name})
        except Exception:
            journal.jobs.pop()  # the cell has deleted it
            continue
        if found[f"{kind}Status"].lower() in ENDED:
            print(f"{kind} {name}: {found[f'{kind}Status']} {found.get('FailureReason', '')}")
            journal.jobs.pop()
        else:
            time.sleep(LONGEST_PAUSE_S)
    journal.waits = False


def out_of_time(*_: Any) -> None:
    raise TimeoutError("the cell took too long")


def run_cells(plan: dict[str, Any], journal: Journal) -> None:
    """Run the cells, one after another."""
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance(colors="nocolor", xmode="Plain")
    shell.run_line_magic("xmode", "Minimal")
    leave_out_installs(journal, shell)
    signal.signal(signal.SIGALRM, out_of_time)
    for number, source in plan["cells"]:
        journal.cell = number
        print(f"\n--- cell {number}", flush=True)
        began, left_out = time.monotonic(), len(journal.left_out)
        signal.alarm(plan["cell_s"])
        try:
            done = shell.run_cell(source, store_history=False)
        finally:
            signal.alarm(0)
        wait_for_jobs(journal, plan["cell_s"])
        error = done.error_before_exec or done.error_in_exec
        row: dict[str, Any] = {"cell": number, "s": round(time.monotonic() - began, 1)}
        if error is not None:
            row["error"] = f"{type(error).__name__}: {error}"[:TOLD]
        if len(journal.left_out) > left_out:
            row["installs"] = True
        journal.cells.append(row)


def main(plan_path: str, out: str) -> None:
    plan = json.loads(Path(plan_path).read_bytes())
    sys.path[0] = ""  # modules beside the notebook, as in Jupyter
    sys.path.append(plan["packages"])
    journal = Journal()
    shorten_pauses()
    answer_for_hub(plan["hub"])
    record_calls(journal, plan["images"])
    try:
        run_cells(plan, journal)
    finally:
        rows = ("asked", "left_out", "commands", "cells")
        document = {name: getattr(journal, name) for name in rows}
        Path(out).write_text(json.dumps(document, default=str), encoding="utf-8")
        sys.stdout.flush()
        os._exit(0)  # threads of SDKs may outlive the cells


if __name__ == "__main__":
    main(*sys.argv[1:])
