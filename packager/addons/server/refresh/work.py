"""The stages of a turn, each by packager's own commands; every one of them may be repeated.

A command runs below a supervisor that ends it with this process: a turn that is killed leaves
nothing running, and the commands go on where they were when they run again.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import urllib3

from packager.addons.bench.draft_measure.servers import MeasuredServer, Opener
from packager.addons.deploy.compose.composers import PROJECT, SERVICE
from packager.addons.deploy.compose.documents import FRONT, generation_of
from packager.addons.deploy.compose.live import LiveCompose
from packager.addons.server.refresh.collect import CollectedTexts, collect, group_of, rows
from packager.addons.server.refresh.gate import GENERAL, decide
from packager.addons.server.refresh.measuring import (
    HeadServers,
    PromptSet,
    RoundWork,
    compare_heads,
    comparison_of,
    rounds_in,
)
from packager.addons.server.refresh.served import ServedFigures, figures_of, judge
from packager.addons.server.refresh.spec import RefreshSpec
from packager.addons.server.refresh.turn import HeadTurn
from packager.cli.run.containers import engine_errors
from packager.cli.serving.containers import find_image
from packager.core.capture.settings import VARIABLE
from packager.core.errors import NotFound, SmokeFailed, StepFailed, UsageError
from packager.core.files.atomic import explain_disk_errors, write_atomically
from packager.core.probes import has_prompt, probe_request
from packager.core.references import parse_bucket_place
from packager.core.remote.pools import timely
from packager.core.samples import Sample, Samples, choose_samples
from packager.engines.without_draft import draft_of, precision_of, without_draft
from packager.models.samples.load import load_samples
from packager.optimize.steps import supervise

_ASK_S = 10.0
_POLL_S = 2.0
_SEED = 0
_SMOKE = 4  # exit status of a deployment whose servers do not answer


@dataclass(frozen=True, kw_only=True)
class RefreshWork:
    """What the stages of one deployment need."""

    spec: RefreshSpec
    directory: Path  # of the file: names in it are relative to it
    engine: Any  # docker-py's
    projects: LiveCompose
    say: Callable[[str], None]
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.time

    @cached_property
    def _http(self) -> Any:
        return timely(urllib3.PoolManager(retries=False))

    def texts(self) -> CollectedTexts | None:
        """Return the traffic that there is; None before any was captured."""
        traffic = self.spec.traffic
        if parse_bucket_place(traffic) is None:
            traffic = str(self.directory / traffic)
        with suppress(NotFound):
            return collect(traffic, self.spec.collect.held_out)
        return None

    def collect(self, folder: Path, last: str) -> dict[str, Any]:
        """Write the texts of a turn; `last` is the digest of those that were trained on."""
        found = self.texts()
        rules = self.spec.collect
        enough = (
            found is not None
            and found.conversations >= rules.conversations
            and bool(found.train and found.held_out)
            and found.digest != last
        )
        document: dict[str, Any] = {"enough": enough}
        if found is not None:
            document |= {
                "digest": found.digest,
                "conversations": found.conversations,
                "held_out": len(found.held_out),
                "skipped": found.skipped,
            }
        if found is not None and enough:
            with explain_disk_errors(folder):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                for name, samples in (("train", found.train), ("held-out", found.held_out)):
                    write_atomically(folder / f"{name}.jsonl", rows(samples), mode=0o600)
            document |= self._serving()
        return document

    def train(self, folder: Path, head: str) -> dict[str, Any]:
        """Train the next head from the one that serves.

        The texts that are kept aside here decide in the gate, so training does not see them.
        """
        spec, output = self.spec, folder / "head"
        words = ["draft", "train", "--model", spec.model, "--method", spec.method]
        words += ["--data", str(folder / "train.jsonl"), "--output", str(output)]
        words += ["--from", head] if head else []
        document = self._run([*words, *spec.train])
        kept = ("expected_length_before", "expected_length", "loss_before", "loss", "texts")
        kept_fields = {name: document[name] for name in kept if name in document}
        return {"head": str(output), **kept_fields}

    def build(self, number: int, head: str) -> dict[str, Any]:
        """Build the image with the next head."""
        spec = self.spec
        image = f"{spec.image}:head-{number}"
        words = ["build", "--model", spec.model, "--instance", spec.instance]
        words += ["--draft", f"{spec.method}:{head}", "--output", f"docker:{image}"]
        self._run([*words, *spec.build])
        return {"image": image, "id": self._id_of(image)}

    def measure(self, folder: Path, turn: HeadTurn) -> dict[str, Any]:
        """Compare the heads; the figures of each round are kept below the folder."""
        self._remove_left()
        work = self._rounds(folder, turn)
        found = compare_heads(work, self.spec.measure.rounds, folder / "rounds")
        return {"prompts": len(found.prompts), "rounds": self.spec.measure.rounds}

    def gate(self, folder: Path) -> dict[str, Any]:
        """Decide by the rounds; note what the serving head does in traffic until now."""
        found = rounds_in(folder / "rounds", self.spec.measure.rounds)
        documents = [one for _, one in sorted(found.items())]
        _, groups = self._prompts(folder)
        verdict = decide(comparison_of(documents, groups), self.spec.gate)
        before = self.figures()
        figures = {"before": before.document() if before else None}
        return {**verdict.document(), **figures}

    def roll_out(self, turn: HeadTurn) -> dict[str, Any]:
        """Replace the servers; servers that do not answer are a verdict, and no failure.

        What somebody else has deployed since the turn began is left alone.
        """
        image, before = str(turn.results["build"]["image"]), str(turn.results["collect"]["image"])
        now = self.projects.status(self.spec.name).image
        if now not in (image, before):
            return {"left": f"the project serves {now or 'nothing'} now, and not {before}"}
        try:
            self._deploy(image)
        except SmokeFailed as error:
            return {"failed": error.message, "at_s": self.clock()}
        return {"at_s": self.clock()}

    def watch(self, turn: HeadTurn) -> dict[str, Any]:
        """Watch the new head until it stays, or is worse."""
        rolled = turn.results["roll-out"]
        if rolled.get("failed"):
            return {"verdict": "worse", "reason": rolled["failed"]}
        before = turn.results["gate"].get("before")
        old = _read_figures(before) if before else None
        while True:
            seconds = self.clock() - float(rolled["at_s"])
            new = self.figures()
            status = self.projects.status(self.spec.name)
            verdict, reason = judge(
                old,
                new,
                self.spec.watch,
                seconds=seconds,
                restarts=self._restarts(),
                answers=status.state == "ready",
            )
            if verdict != "goes on":
                figures = {"after": new.document() if new else None, "seconds": round(seconds, 1)}
                return {"verdict": verdict, "reason": reason, **figures}
            self.sleep(_POLL_S)

    def back(self, turn: HeadTurn) -> dict[str, Any]:
        """Serve the image before again: the very same one, whatever has its name now."""
        found = turn.results["collect"]
        image, wanted = str(found["image"]), str(found["id"])
        if self._id_of(image) != wanted:
            name, _, tag = image.rpartition(":")
            self.engine.images.get(wanted).tag(name, tag)
        self._deploy(image)
        return {"image": image, "id": wanted}

    def commands(self, folder: Path, number: int, head: str) -> list[str]:
        """Return what a turn would run, for people."""
        spec = self.spec
        start = f" --from {head}" if head else ""
        return [
            f"packager draft train --model {spec.model} --method {spec.method}{start}"
            f" --output {folder / 'head'}",
            f"packager build --model {spec.model} --draft {spec.method}:{folder / 'head'}"
            f" --output docker:{spec.image}:head-{number}",
            f"packager deploy compose apply docker:{spec.image}:head-{number} --name {spec.name}",
        ]

    def _serving(self) -> dict[str, Any]:
        """Return the image that serves; raise where a roll-out would end the project's capture."""
        status = self.projects.status(self.spec.name)
        if status.state == "absent" or not status.image:
            raise NotFound(
                f"there is no project {self.spec.name!r} whose head could be renewed",
                hint=f"packager deploy compose apply IMAGE --name {self.spec.name} --capture DIR",
            )
        is_kept = any(word.partition("=")[0] == "--capture" for word in self.spec.deploy)
        fronts = (one for one in self._containers() if one.labels.get(SERVICE) == FRONT)
        variables = [
            word for one in fronts for word in one.attrs.get("Config", {}).get("Env") or ()
        ]
        if not is_kept and any(word.startswith(f"{VARIABLE}=") for word in variables):
            raise UsageError(
                f"project {self.spec.name!r} captures traffic, and a roll-out would end that",
                hint="repeat in `deploy` what it was applied with, such as --capture DIR",
            )
        return {"image": status.image, "id": self._id_of(status.image)}

    def _id_of(self, image: str) -> str:
        try:
            return str(find_image(self.engine, image).id)
        except NotFound:
            return ""

    def _deploy(self, image: str) -> None:
        words = ["deploy", "compose", "apply", f"docker:{image}", "--name", self.spec.name]
        self._run([*words, "--wait", *self.spec.deploy])

    def figures(self) -> ServedFigures | None:
        """Return what the project's server says of its traffic; None where it does not."""
        address = self.projects.status(self.spec.name).address
        if not address:
            return None
        try:
            answer = self._http.request("GET", f"{address}/metrics", timeout=_ASK_S)
        except urllib3.exceptions.HTTPError:
            return None
        return figures_of(answer.data.decode(errors="replace")) if answer.status == 200 else None

    def _containers(self) -> list[Any]:
        filters = {"label": f"{PROJECT}={self.spec.name}"}
        with engine_errors():
            return list(self.engine.containers.list(all=True, filters=filters, ignore_removed=True))

    def _restarts(self) -> int:
        servers = (one for one in self._containers() if generation_of(one.labels.get(SERVICE, "")))
        return sum(int(one.attrs.get("RestartCount") or 0) for one in servers)

    def _remove_left(self) -> None:
        """Remove the containers of a measurement that was killed."""
        name = re.compile(f"packager-{self._purpose}-[0-9a-f]{{12}}")
        with engine_errors():
            for one in self.engine.containers.list(all=True, ignore_removed=True):
                if name.fullmatch(str(one.name)):
                    one.remove(force=True, v=True)

    @property
    def _purpose(self) -> str:
        return f"refresh-{self.spec.name}"

    def _rounds(self, folder: Path, turn: HeadTurn) -> RoundWork:
        rules = self.spec.measure
        old, new = str(turn.results["collect"]["image"]), str(turn.results["build"]["image"])
        config = find_image(self.engine, old).attrs.get("Config") or {}
        served = MeasuredServer(name=old, env=rules.env, precision=precision_of(config))
        changes = without_draft(config) if draft_of(config) else None
        plain = None
        if changes is not None:
            shown = f"{old} without its draft"
            plain = MeasuredServer(name=old, env={**rules.env, **changes}, shown=shown)
        questions, groups = self._prompts(folder)
        opener = Opener(
            connect=lambda: self.engine,
            deadline_s=rules.timeout_s,
            connections=rules.concurrency + 1,
            on_progress=self.say,
            gpus=rules.gpus,
            purpose=self._purpose,
        )
        return RoundWork(
            servers=HeadServers(
                old=served, new=MeasuredServer(name=new, env=rules.env), plain=plain
            ),
            prompts=PromptSet(questions=questions, groups=groups),
            concurrency=rules.concurrency,
            opener=opener,
            together=rules.together,
            on_progress=self.say,
        )

    def _prompts(self, folder: Path) -> tuple[tuple[Any, ...], tuple[str, ...]]:
        """Return the prompts of a turn and their sets; the same ones each time."""
        rules = self.spec.measure
        found = _chosen(load_samples(str(folder / "held-out.jsonl")), rules.prompts)
        sets = [(group_of(one), one) for one in found]
        if rules.general:
            place = self.directory / rules.general
            general = load_samples(str(place) if place.exists() else rules.general)
            sets += [(GENERAL, one) for one in _chosen(general, rules.prompts)]
        questions = tuple(probe_request(one, rules.max_tokens) for _, one in sets)
        return questions, tuple(group for group, _ in sets)

    def _run(self, words: Sequence[str]) -> dict[str, Any]:
        """Run a command of packager; return what it prints, raise what it ends with."""
        command = [sys.executable, "-P", "-m", "packager", *words, "--format", "json"]
        supervised = [sys.executable, "-I", str(supervise.__file__), "-1", *command]
        self.say(f"packager {' '.join(words)}")
        with subprocess.Popen(
            supervised, cwd=self.directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as running:
            assert running.stdout is not None
            output = running.stdout.read()
            status = running.wait()
        if status:
            kind = SmokeFailed if status == _SMOKE else StepFailed
            raise kind(
                f"`packager {' '.join(words[:3])} …` ended with status {status}",
                hint="its error is above; the turn goes on from here when it is run again",
            )
        document = json.loads(output or b"{}")
        return document if isinstance(document, dict) else {}


def _chosen(found: Samples, count: int) -> tuple[Sample, ...]:
    asked = tuple(one for one in found.samples if has_prompt(one))
    return choose_samples(Samples(source=found.source, samples=asked), count, _SEED).samples


def _read_figures(document: dict[str, Any]) -> ServedFigures:
    """Return figures as the journal has them; the length follows from the others."""
    return ServedFigures(**{name: one for name, one in document.items() if name != "length"})
