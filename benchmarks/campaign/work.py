"""What the stages of a campaign do: packager's own commands, and figures of their results.

Every stage has a cache and a state directory of its own, so that nothing is a hit and no past run
corrects an estimate.  What a stage that was ended early left in its cache is gone on with.
Standard library only, but for what runs in tool environments.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.campaign.models import write_model
from benchmarks.campaign.stages import Failure, Journal, Stage
from benchmarks.campaign.wheels import ROOT, bring, unpack

# As in file names: a dash for the comma of `--quantize`.  FP8 with scales of activations, since
# what looks at no texts is rounded on the processor, whatever GPUs there are.
METHODS = ("fp8-static", "gptq", "awq")
KEEPS_WORK = ("awq", "gptq")  # what takes long enough to go on with, the longer first
SIDES = ("device", "host")
MODEL_ROOT = "opt/packager/model/"
WITHIN = 2.0  # of measured, an estimate should be
QUERY = ["nvidia-smi", "--query-gpu=name,memory.total,compute_cap,driver_version"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a campaign was begun with."""

    directory: Path
    cpu: bool = False  # the processor stands for the GPU: both sides are the same then
    size: str = "1b"
    methods: tuple[str, ...] = METHODS
    samples: int = 16
    tokens: int = 256
    head: str = "eagle3"
    head_steps: int = 50
    wheels: Path | None = None

    def document(self) -> dict[str, Any]:
        """Return the settings as JSON, without the directory."""
        return {
            "cpu": self.cpu, "size": self.size, "methods": list(self.methods),
            "samples": self.samples, "tokens": self.tokens, "head": self.head,
            "head_steps": self.head_steps,
            "wheels": str(self.wheels) if self.wheels else None,
        }  # fmt: skip

    @classmethod
    def read(cls, directory: Path) -> Settings:
        """Read what a directory's campaign was begun with."""
        found = json.loads((directory / "settings.json").read_bytes())
        found["methods"] = tuple(found["methods"])
        found["wheels"] = Path(found["wheels"]) if found["wheels"] else None
        return cls(directory=directory, **found)


@dataclass(kw_only=True)
class Ran:
    """A run of packager: what it printed, and the steps that it told of."""

    document: dict[str, Any] = field(default_factory=dict)
    steps: dict[str, dict[str, float]] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)  # stderr, but for events
    killed_at: tuple[int, int] | None = None  # blocks done, of how many

    def hear(self, line: str) -> dict[str, Any]:
        """Parse a line of stderr; return the event that it is, if it is one."""
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if not isinstance(event, dict) or event.get("event") != "step":
            if not isinstance(event, dict):
                self.words.append(line.strip())
            return {}
        seen = self.steps.setdefault(event["step"], {})
        if event["state"] == "started" and event["eta_s"]:
            seen["estimated_s"] = event["eta_s"]
        if event["state"] == "finished":
            seen["measured_s"] = event["seconds"]
        return event

    def error(self) -> str:
        """Return the message of the error that ended it: a JSON document, or lines."""
        text = "\n".join(self.words)
        told = last_json(text[text.rfind("\n{\n") + 1 :])
        lines = [line for line in self.words if line.startswith("error")] or self.words[-1:]
        return str(told.get("message") or " ".join(lines))


class Campaign:
    """The stages, over one directory."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.journal = Journal(settings.directory)
        self.model = settings.directory / "model"

    def stages(self) -> list[Stage]:
        """List the stages in their order."""
        stages = [
            Stage(name="machine", does="look at the machine and its tools", work=self.machine),
            Stage(
                name="model", after=("machine",), work=self.write_model,
                does=f"write a Llama of size {self.settings.size} with random weights",
            ),
        ]  # fmt: skip
        for method in self.settings.methods:
            names = []
            for side in SIDES:
                names.append(f"quantize-{method}-{side}")
                stages.append(
                    Stage(
                        name=names[-1], after=("model",),
                        does=f"quantize it by {method} on the {self.place(side)}",
                        work=partial(self.quantize, method, side),
                    )
                )  # fmt: skip
            stages.append(
                Stage(
                    name=f"compare-{method}", after=tuple(names),
                    does=f"compare the tensors of both {method} checkpoints",
                    work=partial(self.compare, method),
                )
            )  # fmt: skip
            for side, name in zip(SIDES, names, strict=True):
                stages.append(
                    Stage(
                        name=f"evaluate-{method}-{side}", after=(name,),
                        does=f"evaluate the {method} checkpoint made on the {self.place(side)}",
                        work=partial(self.evaluate, method, side),
                    )
                )  # fmt: skip
        for method in [one for one in KEEPS_WORK if one in self.settings.methods][:1]:
            stages.append(
                Stage(
                    name="continue", after=(f"quantize-{method}-device",),
                    does=f"kill {method} half-way, and go on",
                    work=partial(self.go_on, method),
                )
            )  # fmt: skip
        stages.append(
            Stage(
                name="train", after=("model",), work=self.train,
                does=f"train an {self.settings.head} head on the {self.place('device')}",
            )
        )  # fmt: skip
        return [*stages, Stage(name="estimates", does="hold estimates against what was measured",
                               after=("model",), work=self.estimates)]  # fmt: skip

    def place(self, side: str) -> str:
        """Describe what a side computes on."""
        if side == "host":
            return "processor"
        return "processor, for want of a GPU" if self.settings.cpu else "GPU"

    def devices(self, side: str) -> list[str]:
        """Return packager's options for a side."""
        return ["--gpus", "1" if side == "device" and not self.settings.cpu else "0"]

    def machine(self) -> dict[str, Any]:
        """Describe the machine; make the environments of the tools where wheels were brought."""
        found: dict[str, Any] = {
            "python": sys.version.split()[0],
            "cpus": len(os.sched_getaffinity(0)),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "gpu": None if self.settings.cpu else gpu(),
        }
        if self.settings.wheels:
            site = self.settings.directory / "site"
            found["wheels"] = unpack(self.settings.wheels, site)
            sys.path.insert(1, str(site))
            found["versions"] = bring(site, self.settings.directory / "tools")
            if not self.settings.cpu:
                found["torch"] = self.torch()
        found["tools"] = self.packager("machine", ["tools", "list", "--format", "json"]).document
        return found

    def torch(self) -> dict[str, Any]:
        """Ask the torch of the tool environment what it sees; refuse one that sees no GPU."""
        text = (
            "import json, torch; there = torch.cuda.is_available()\n"
            "print(json.dumps({'version': torch.__version__, 'cuda': torch.version.cuda,"
            " 'sees': torch.cuda.get_device_name(0) if there else None}))"
        )
        found = last_json(self.in_tool(["-c", text]))
        if not found.get("sees"):
            raise Failure("torch sees no GPU", "its build and the driver have to match; or --cpu")
        return found

    def write_model(self) -> dict[str, Any]:
        """Write the model that all stages share."""
        shutil.rmtree(self.model, ignore_errors=True)
        return write_model(self.model, self.settings.size)

    def quantize(self, method: str, side: str) -> dict[str, Any]:
        """Build an image without a base, and take the checkpoint out of it."""
        stage = f"quantize-{method}-{side}"
        ran = self.packager(stage, self.build(stage, method, side))
        figures = self.built(stage, ran)
        wanted = "cuda" if side == "device" and not self.settings.cpu else "cpu"
        if figures["device"] != wanted:
            raise Failure(f"it ran on {figures['device']!r} instead of {wanted!r}")
        load_model(self.work(stage) / "image", self.result(method, side))
        shutil.rmtree(self.work(stage))
        return figures

    def build(self, stage: str, method: str, side: str) -> list[str]:
        """Return the command that quantizes."""
        asked = self.settings
        shutil.rmtree(self.work(stage) / "image", ignore_errors=True)
        return [
            "build", "--model", str(self.model), "--instance", "ml.g6.12xlarge",
            "--family", "vllm", "--base", "scratch", "--quantize", method.replace("-", ","),
            "--quantizer", "llmcompressor",
            *self.devices(side),
            "--calibration-samples", str(asked.samples),
            "--calibration-tokens", str(asked.tokens),
            "--output", f"oci:{self.work(stage) / 'image'}",
            "--record", str(self.work(stage) / "record.json"),
            "--format", "json", "--progress", "json",
        ]  # fmt: skip

    def built(self, stage: str, ran: Ran) -> dict[str, Any]:
        """Return the figures of a build from its record."""
        record = json.loads((self.work(stage) / "record.json").read_bytes())
        (step,) = [one for one in record["steps"] if one["name"] == "quantize"]
        details = step["details"]
        return {
            "steps": ran.steps,
            "step_s": step["seconds"],
            "build_s": record["seconds"],
            "peak_memory_bytes": step["peak_memory_bytes"],
            "versions": step["versions"],
            **{name: details[name] for name in details if name not in ("recipe", "shared_tensors")},
        }

    def compare(self, method: str) -> dict[str, Any]:
        """Compare the tensors of both sides."""
        return self.compared(*(self.result(method, side) for side in SIDES))

    def compared(self, one: Path, other: Path) -> dict[str, Any]:
        """Compare two checkpoints; refuse two that have other tensors."""
        program = Path(__file__).with_name("tensors.py")
        found = last_json(self.in_tool([str(program), str(one), str(other)]))
        if not found["comparable"]:
            names = [*found["only_in_one"], *found["described_otherwise"]]
            raise Failure(f"the checkpoints have other tensors: {', '.join(names)}")
        return found

    def evaluate(self, method: str, side: str) -> dict[str, Any]:
        """Compare a checkpoint with its source, always on the device: figures compare."""
        stage = f"evaluate-{method}-{side}"
        ran = self.packager(
            stage,
            [
                "evaluate", "--base", str(self.model),
                "--candidate", str(self.result(method, side)),
                "--samples", str(self.settings.samples), "--max-tokens", str(self.settings.tokens),
                "--prompts", "0", "--noise-texts", "0", *self.devices("device"),
                "--format", "json", "--progress", "json",
            ],
        )  # fmt: skip
        names = ("tokens", "perplexity_base", "perplexity_candidate", "kld_mean", "top1_agreement")
        return {"steps": ran.steps, **{name: ran.document["quality"][name] for name in names}}

    def go_on(self, method: str) -> dict[str, Any]:
        """Kill a quantization in its middle, run it again, and compare with the whole run."""
        stage = "continue"
        shutil.rmtree(self.work(stage), ignore_errors=True)
        command = self.build(stage, method, "device")
        killed = self.packager(stage, command, kill=True)
        if killed.killed_at is None:
            raise Failure("it ended before it could be killed", "take a larger --size")
        again = self.packager(stage, command)
        took_up = re.findall(r"going on after block (\d+) of (\d+)", "\n".join(again.words))
        figures = self.built(stage, again)
        load_model(self.work(stage) / "image", self.work(stage) / "model")
        whole = self.journal.read(f"quantize-{method}-device")["figures"]
        figures = {
            "method": method,
            "killed_at_block": killed.killed_at[0],
            "of_blocks": killed.killed_at[1],
            "went_on_after": [[int(done), int(of)] for done, of in took_up],
            "whole_step_s": whole["step_s"],
            "second_step_s": figures["step_s"],
            "tensors": self.compared(self.result(method, "device"), self.work(stage) / "model"),
        }
        shutil.rmtree(self.work(stage))
        return figures

    def train(self) -> dict[str, Any]:
        """Train a head for a few steps: untrained weights teach it nothing, but it takes time."""
        asked, output = self.settings, self.settings.directory / "head"
        ran = self.packager(
            "train",
            [
                "draft", "train", "--model", str(self.model), "--method", asked.head,
                "--data", "default", "--answers", "data", "--samples", str(asked.samples),
                "--max-tokens", str(asked.tokens), "--max-steps", str(asked.head_steps),
                "--output", str(output), *self.devices("device"),
                "--format", "json", "--progress", "json",
            ],
        )  # fmt: skip
        files = {path.name: path.stat().st_size for path in sorted(output.iterdir())}
        return {"steps": ran.steps, "files": files, "told": ran.document}

    def estimates(self) -> dict[str, Any]:
        """Gather what each step was estimated to take, and what it took."""
        rows = []
        for stage in self.stages():
            figures = self.journal.read(stage.name).get("figures", {})
            for step, seen in figures.get("steps", {}).items():
                if len(seen) == 2 and seen["estimated_s"] > 0:
                    ratio = round(seen["measured_s"] / seen["estimated_s"], 2)
                    rows.append({"stage": stage.name, "step": step, **seen, "ratio": ratio})
        within = [1 / WITHIN <= row["ratio"] <= WITHIN for row in rows]
        return {"rows": rows, "within_factor_2": sum(within), "of": len(rows)}

    def result(self, method: str, side: str) -> Path:
        """Return where a checkpoint is."""
        return self.settings.directory / "results" / f"{method}-{side}"

    def work(self, stage: str) -> Path:
        """Return the directory of a stage, which goes when it is done."""
        place = self.settings.directory / "work" / stage
        place.mkdir(parents=True, exist_ok=True)
        return place

    def packager(self, stage: str, arguments: Sequence[str], *, kill: bool = False) -> Ran:
        """Run packager; with `kill`, only until half of a model's blocks are quantized."""
        ran = Ran()
        with subprocess.Popen(
            [sys.executable, "-m", "packager", *arguments],
            env=self.environment(stage), cwd=self.work(stage), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stdout is not None and process.stderr is not None
            for line in process.stderr:
                print(line, end="", file=sys.stderr, flush=True)
                told = str(ran.hear(line).get("detail", ""))
                blocks = re.fullmatch(r"quantizing, (\d+) of (\d+)", told)
                if kill and blocks and 2 * int(blocks[1]) >= int(blocks[2]):
                    ran.killed_at = (int(blocks[1]), int(blocks[2]))
                    process.send_signal(signal.SIGKILL)
                    break
            output = process.stdout.read()
        if process.returncode and ran.killed_at is None:
            raise Failure(f"packager ended with status {process.returncode}: {ran.error()}")
        ran.document = last_json(output) if ran.killed_at is None else {}
        return ran

    def environment(self, stage: str) -> dict[str, str]:
        """Return the environment of packager: nobody's settings, cache or tools but ours."""
        base = self.settings.directory
        ours = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PACKAGER_CACHE", "PACKAGER_CLAIM"))
        }
        ours |= {
            "PACKAGER_CACHE": str(self.work(stage) / "cache"),
            "XDG_STATE_HOME": str(base / "state"),
            "XDG_CONFIG_HOME": str(base / "config"),
            "PYTHONPATH": str(ROOT),
        }
        if self.settings.wheels:
            ours["PYTHONPATH"] += f"{os.pathsep}{base / 'site'}"
            ours |= {"PACKAGER_TOOLS": str(base / "tools"), "PACKAGER_ALLOW_UNHASHED": "1"}
        return ours

    def in_tool(self, arguments: Sequence[str]) -> str:
        """Run a program in the environment of llm-compressor; return its output."""
        python = self.tool_python()
        done = subprocess.run([python, *arguments], stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise Failure(f"{Path(arguments[0]).name} ended with status {done.returncode}")
        return done.stdout

    def tool_python(self) -> str:
        """Return the Python of the tool's environment."""
        done = subprocess.run(
            [sys.executable, "-m", "packager", "tools", "path", "llmcompressor"],
            env=self.environment("machine"), stdout=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise Failure("llmcompressor has no environment")
        return str(Path(done.stdout.strip()) / "bin/python")


def gpu() -> dict[str, str]:
    """Ask the driver for the first GPU; refuse a machine without one."""
    command = [*QUERY, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        done = None
    if done is None or done.returncode or not done.stdout.strip():
        raise Failure("no NVIDIA GPU is here", "--cpu runs the campaign on the processor")
    values = [value.strip() for value in done.stdout.splitlines()[0].split(",")]
    return dict(zip(("name", "memory_mib", "compute_capability", "driver"), values, strict=True))


def load_model(layout: Path, into: Path) -> None:
    """Write the model's files of an OCI layout into a directory of their own."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    blobs = layout / "blobs/sha256"
    index = json.loads((layout / "index.json").read_bytes())
    manifest = json.loads((blobs / index["manifests"][0]["digest"][7:]).read_bytes())
    for layer in manifest["layers"]:
        with tarfile.open(blobs / layer["digest"][7:]) as archive:
            for entry in archive:
                inside = entry.name.removeprefix("./").removeprefix("/")
                file = archive.extractfile(entry) if inside.startswith(MODEL_ROOT) else None
                if file is not None and "/" not in (name := inside.removeprefix(MODEL_ROOT)):
                    with (into / name).open("wb") as out:
                        shutil.copyfileobj(file, out)
    if not any(into.glob("*.safetensors")):
        raise Failure(f"the image has no weights below {MODEL_ROOT}")


def last_json(text: str) -> dict[str, Any]:
    """Read what a command printed: one JSON document, or lines of which the last is one."""
    for part in (text, text.strip().rpartition("\n")[2]):
        try:
            found = json.loads(part)
        except ValueError:
            continue
        return found if isinstance(found, dict) else {"list": found}
    return {}
