"""Load a checkpoint as the image will, write what each rank has, and load that again.

Runs in the serving image itself.  The first start writes one set of files a rank (see
`rank_saver`), the second one loads them with `--load-format sharded_state`, without the
checkpoint's own weights beside them.  Both are asked the same, and must answer the same.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import rank_saver
from engine_server import start_and_ask
from packager_worker import Rejected, Report, Spec, run

RANK_FILE = re.compile(r"model-rank-(\d+)-part-(\d+)\.safetensors")
LOADED = re.compile(rb"Loading weights took ([0-9.]+) seconds")
PLAIN = ("*.safetensors", "*.safetensors.index.json", "*.bin", "*.pt", "*.pth", "*.gguf")
SLACK_BYTES = 64 * 2**20  # of padding and headers
LARGEST_HEADER = 100_000_000  # as the safetensors library has it


def work(spec: Spec, report: Report) -> dict[str, Any]:
    """Split, compare, load again; the details say how long loading took each way."""
    asked = spec.parameters
    python = find_python(asked["pythons"], asked["engine"])
    model = spec.inputs["model"]
    env = with_plugin(asked, spec)
    first = start(spec, report, "splitting", python, model, rank_saver.NAME, env)
    weight_bytes = sum(path.stat().st_size for path in model.rglob("*.safetensors"))
    ranks = check_ranks(spec.output, asked["ranks"], weight_bytes)
    split = without_weights(model, spec.work / "split")
    for name in ranks:
        (split / name).symlink_to(spec.output / name)
    second = start(spec, report, "verifying", python, split, "sharded_state", plain_env(asked))
    if first["answers"] != second["answers"]:
        raise Rejected(
            "the model answers otherwise when its weights were split before they are loaded",
            "this engine does not keep all that loading makes: leave the load format out",
        )
    return {
        "files": len(ranks),
        "bytes": sum((spec.output / name).stat().st_size for name in ranks),
        "load_seconds_without": first["load"],
        "load_seconds": second["load"],
        "ready_seconds_without": first["ready"],
        "ready_seconds": second["ready"],
        "answers": first["answers"],
    }


def find_python(candidates: list[str], engine: Mapping[str, str]) -> str:
    """Return the path of the Python that has the engine, in the version that the catalog says."""
    told = "import importlib.metadata as m; print(m.version({name!r}))".format(**engine)
    found = "none"
    for python in candidates:
        with suppress(OSError):
            done = subprocess.run([python, "-I", "-c", told], capture_output=True, text=True)
            if done.returncode == 0:
                found = done.stdout.strip()
                if found.partition("+")[0] == engine["version"]:
                    return shutil.which(python) or python
    wanted = f"{engine['name']} {engine['version']}"
    raise RuntimeError(f"the plan is for {wanted}, the base image has {found}")


def server_of(python: str, model: Path) -> list[str]:
    """Return the command of the server: the image's own `vllm`, if it has one beside its Python."""
    own = Path(python).with_name("vllm")
    if own.is_file():
        return [str(own), "serve", str(model)]
    return [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]


def with_plugin(asked: Mapping[str, Any], spec: Spec) -> dict[str, str]:
    """Make the load format an installed package, for every process that vLLM starts."""
    place = spec.work / "plugin"
    about = place / "packager_ranks-1.dist-info"
    about.mkdir(parents=True)
    shutil.copy(rank_saver.__file__, place)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: packager-ranks\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        f"[vllm.general_plugins]\n{rank_saver.NAME} = rank_saver:register\n"
    )
    given = plain_env(asked)
    path = ":".join(filter(None, (str(place), given.get("PYTHONPATH", ""))))
    return {
        **given,
        "PYTHONPATH": path,
        rank_saver.INTO: str(spec.output),
        rank_saver.PART_BYTES: str(asked["part_bytes"]),
    }


def plain_env(asked: Mapping[str, Any]) -> dict[str, str]:
    """Return the engine's environment: the step's, and places of ours that it may write to."""
    ours = {name: os.environ[name] for name in ("HOME", "TMPDIR") if name in os.environ}
    return {**ours, **asked["env"]}


def without_weights(model: Path, into: Path) -> Path:
    """Link a model's other files into a new directory: what the image will have of it."""
    plain = {path for pattern in PLAIN for path in model.rglob(pattern)}
    into.mkdir()
    for path in sorted(model.rglob("*")):
        if path.is_file() and path not in plain:
            link = into / path.relative_to(model)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path)
    return into


def check_ranks(place: Path, ranks: int, weight_bytes: int) -> list[str]:
    """Return the files' names; raise unless every rank is whole and has what the others have."""
    names = sorted(path.name for path in place.iterdir())
    parts: dict[int, dict[int, str]] = {rank: {} for rank in range(ranks)}
    for name in names:
        named = RANK_FILE.fullmatch(name)
        if named is None or int(named[1]) not in parts:
            raise RuntimeError(f"the engine wrote {name!r}, which is of no rank")
        parts[int(named[1])][int(named[2])] = name
    tensors: dict[int, dict[str, Any]] = {}
    for rank, found in parts.items():
        if not found or sorted(found) != list(range(len(found))):
            raise RuntimeError(f"the engine wrote parts {sorted(found)} of rank {rank}")
        tensors[rank] = {
            tensor: (info["dtype"], len(info["shape"]))
            for name in found.values()
            for tensor, info in header_of(place / name).items()
        }
        if tensors[rank] != tensors[0]:
            other = sorted(set(tensors[rank].items()) ^ set(tensors[0].items()))[0][0]
            raise RuntimeError(f"rank {rank} has another {other!r} than rank 0")
    total = sum((place / name).stat().st_size for name in names)
    # Tied and unused tensors are left out, norms and the like are on every rank.
    if not weight_bytes // 2 <= total <= ranks * weight_bytes + ranks * SLACK_BYTES:
        raise RuntimeError(f"{weight_bytes} bytes of weights became {total} bytes on {ranks} ranks")
    return names


def header_of(path: Path) -> dict[str, Any]:
    """Read a safetensors header; raise where the file is not as long as it says."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 0 < length <= LARGEST_HEADER:
            raise RuntimeError(f"{path.name} has a header of {length} bytes")
        header: dict[str, Any] = json.loads(file.read(length))
    header.pop("__metadata__", None)
    end = max((info["data_offsets"][1] for info in header.values()), default=0)
    if path.stat().st_size != 8 + length + end:
        raise RuntimeError(f"{path.name} is cut short")
    return header


def start(
    spec: Spec,
    report: Report,
    doing: str,
    python: str,
    model: Path,
    load_format: str,
    env: Mapping[str, str],
) -> dict[str, Any]:
    """Start the server, ask it everything that is asked, stop it."""
    asked = spec.parameters
    argv = [
        *server_of(python, model),
        *("--load-format", load_format),
        *("--host", "127.0.0.1", "--port", str(asked["port"])),
        *asked["arguments"],
    ]
    log = spec.work / f"{doing}.log"
    ready, load, answers = start_and_ask(
        report, doing, argv, env, log, asked, health="/health", said=LOADED
    )
    return {"ready": ready, "load": load, "answers": answers}


if __name__ == "__main__":
    run(work, packages=("torch",))
