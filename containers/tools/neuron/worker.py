"""Compile a model for NeuronCores with the toolchain of the serving image.

Needs no device: `NEURON_PLATFORM_TARGET_OVERRIDE` names what is compiled for, and nothing
is run.  The compiler's cache is kept, and the traced model without its weights: they are
the model's own, beside it in the image, so fine-tunes share what is kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packager_worker import BadInput, Rejected, Report, Spec, WorkerFailed, run, versions_of

PACKAGES = ("neuronx-cc", "optimum-neuron", "neuronx-distributed-inference", "torch-neuronx")
COMPILER = re.compile(r"neuronxcc-(?P<version>[0-9][0-9A-Za-z.]*(\+[0-9a-f]+)?)")
MODULE = re.compile(r"MODULE_[0-9A-Za-z]{8,64}\+[0-9a-f]{8}")
# Of a graph: what is kept.  Locks and logs are of this run.
KEPT = ("model.neff", "model.done", "model.hlo_module.pb", "model.hlo.pb", "wrapped_neff.hlo")
KEPT_FLAGS = ("compile_flags.json", "compile_flags.txt")
# Of a traced model: what was compiled.  Its config.json is each served model's own.
TRACED = re.compile(r"neuron_config\.json|model(_[a-z0-9_]+)?\.pt")

# What the toolchain says of a model that it cannot compile, whoever asks again.
REFUSALS = re.compile(
    r"invalid choice: .*|.*is not supported( by|\.|$).*|.*[Uu]nsupported .*"
    r"|.*must be divisible.*|\[?[A-Z]{3}\d{3}\]?.*Compilation failed.*"
)
NO_TOOLCHAIN = re.compile(
    r"No module named '?(neuronx\w*|torch_neuronx|libneuronxla|optimum)|WRONG PACKAGE"
)
KILLED = re.compile(r"\[F137\]|forcibly killed|MemoryError|[Oo]ut of memory")
TAIL_LINES = 400

# What optimum-neuron leaves out of a config that it registers (cache_entry.py of 0.4.5).
UNREGISTERED = frozenset({
    "_name_or_path", "transformers_version", "_diffusers_version", "eos_token_id", "bos_token_id",
    "pad_token_id", "torchscript", "torch_dtype", "_commit_hash", "sample_size", "projection_dim",
    "_use_default_values", "_attn_implementation_autoset", "return_dict",
})  # fmt: skip
TASK = "text-generation"


def work(spec: Spec, report: Report) -> dict[str, Any]:
    """Compile, keep what is sound, and say what came out."""
    asked = spec.parameters
    if not asked["command"]:
        raise WorkerFailed(
            "graphs for this image are compiled on a machine with NeuronCores only",
            "compile with SageMaker Neo and take its output: `packager cache import --from neo`",
        )
    sys.path.insert(0, str(asked["serving_dir"]))  # the launcher's own part, as in the image
    import compiled_cache

    refuse_other_versions(asked["versions"])
    cache, traced = spec.work / "cache", spec.work / "traced"
    cache.mkdir()
    with report.busy("compiling for " + asked["expected"]["target"]):
        compile_model(asked["command"], spec.work, cache, traced)
    graphs = keep_cache(compiled_cache, cache, spec.output)
    register(spec.output, traced)
    model = keep_traced(traced, spec.output / compiled_cache.MODEL, asked["expected"])
    write_manifest(compiled_cache, spec.output)
    return {"graphs": graphs, "traced": model, "compiler": compiler_of(spec.output)}


def refuse_other_versions(wanted: Mapping[str, str]) -> None:
    """Stop where the image has another engine than the plan's."""
    found = versions_of(wanted)
    for name, version in wanted.items():
        have = found.get(name, "none")
        if not have.startswith(version):
            raise WorkerFailed(
                f"the plan is for {name} {version}, the base image has {have}",
                "name the image of that version with --base",
            )


def compile_model(command: list[str], work: Path, cache: Path, traced: Path) -> None:
    """Run the toolchain; turn what it says into a class of error."""
    places = {"{traced}": str(traced)}
    argv = [places.get(word, word) for word in command]
    env = {
        **os.environ,
        "NEURON_COMPILE_CACHE_URL": str(cache),
        "BASE_COMPILE_WORK_DIR": f"{work}/nxd/",
    }
    log = work / "toolchain.log"
    try:
        with log.open("wb") as out:
            code = subprocess.run(argv, env=env, cwd=work, stdout=out, stderr=out, check=False)
    except OSError as error:
        raise WorkerFailed(
            f"the base image has no {argv[0]!r}: {error.strerror}",
            "name a base image with the Neuron toolchain with --base",
        ) from error
    said = log.read_text(encoding="utf-8", errors="replace")
    sys.stderr.write(said)
    if code.returncode:
        raise failure_of(code.returncode, said.splitlines()[-TAIL_LINES:], cache)


def failure_of(status: int, lines: list[str], cache: Path) -> Exception:
    """Give the error that a failed run means."""
    text = "\n".join(lines)
    if KILLED.search(text) or status in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return MemoryError("out of memory: the compiler was killed")
    if NO_TOOLCHAIN.search(text):
        return WorkerFailed(
            "the base image has no Neuron toolchain: " + last_line(lines),
            "name a base image with neuronx-cc; the packages of that name on PyPI are empty",
        )
    # The compiler's cache names each graph that it gave up on.
    for failed in sorted(cache.glob("neuronxcc-*/MODULE_*/model.log")):
        if not failed.with_name("model.neff").exists():
            reason = last_line(failed.read_text(errors="replace").splitlines()) or "no reason"
            return Rejected(f"neuronx-cc cannot compile {failed.parent.name}: {reason}")
    for line in reversed(lines):
        if found := REFUSALS.search(line):
            return Rejected(f"the Neuron toolchain refuses the model: {found[0].strip()[:400]}")
    return RuntimeError(f"the toolchain ended with status {status}: {last_line(lines)}")


def last_line(lines: list[str]) -> str:
    return next((line.strip()[:400] for line in reversed(lines) if line.strip()), "")


def keep_cache(compiled_cache: Any, cache: Path, output: Path) -> int:
    """Copy the sound graphs; raise for one that is not, since a failed graph poisons a cache."""
    graphs = 0
    for module in sorted(cache.glob("neuronxcc-*/MODULE_*")):
        name = module.relative_to(cache)
        if not COMPILER.fullmatch(module.parent.name) or not MODULE.fullmatch(module.name):
            raise RuntimeError(f"{name} is no graph of a Neuron compiler by its name")
        if not (module / "model.neff").is_file() or not (module / "model.done").is_file():
            raise RuntimeError(f"{module.name} was not compiled to its end")
        compiled_cache.check_neff(module / "model.neff")
        if (module / "compile_flags.json").is_file():
            read_object(module / "compile_flags.json", list)
        for file in (*KEPT, *KEPT_FLAGS):
            if (module / file).is_file():
                (output / name).mkdir(parents=True, exist_ok=True)
                shutil.copyfile(module / file, output / name / file)
        graphs += 1
    if not graphs:
        raise RuntimeError("the toolchain left no graph in its cache")
    return graphs


def keep_traced(traced: Path, output: Path, expected: Mapping[str, Any]) -> list[str]:
    """Move the traced model without weights; raise where it is another than was asked for."""
    told = read_object(traced / "neuron_config.json", dict)
    told = told.get("neuron_config", told)  # NxD Inference nests it
    for name, wanted in expected.items():
        have = told.get(name, wanted)
        if have is not None and str(have).removeprefix("torch.") != str(wanted):
            raise RuntimeError(f"asked for {name} {wanted}, the toolchain compiled {have}")
    output.mkdir(parents=True)
    kept = [path.name for path in sorted(traced.iterdir()) if TRACED.fullmatch(path.name)]
    if not any(name.endswith(".pt") for name in kept):
        raise RuntimeError("the toolchain left no traced model")
    for name in kept:
        if (traced / name).stat().st_size == 0:
            raise RuntimeError(f"the toolchain left {name} empty")
        shutil.move(traced / name, output / name)
    return kept


def register(output: Path, traced: Path) -> None:
    """File what was exported as optimum-neuron does, which registers no model of a directory.

    The tree can then be read as its cache.  NxD Inference's has no such fields, and no registry.
    """
    neuron = read_object(traced / "neuron_config.json", dict)
    versions = [
        str(neuron.get(name, "")) for name in ("neuronxcc_version", "optimum_neuron_version")
    ]
    [cache] = output.glob("neuronxcc-*")  # one run has one compiler
    if not all(versions) or not cache.name.removeprefix("neuronxcc-").startswith(versions[0]):
        return
    saved = read_object(traced / "config.json", dict)
    config = {name: value for name, value in saved.items() if name not in UNREGISTERED}
    family = str(config.get("model_type", ""))
    named = {"model_type": family, "task": TASK, "config": config}
    digest = hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()
    entry = {
        **config,
        "neuron": neuron,
        "_entry_class": "SingleModelCacheEntry",
        "_model_id": family,  # fine-tunes share this: no model's own name
        "_task": TASK,
    }
    text = json.dumps(entry, indent=2, sort_keys=True).encode()
    place = cache / "0_REGISTRY" / versions[1] / digest
    place.mkdir(parents=True)
    (place / f"{hashlib.sha512(text).hexdigest()[:20]}.json").write_bytes(text)


def read_object(path: Path, kind: type) -> Any:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"the toolchain left no readable {path.name}: {error}") from error
    if not isinstance(found, kind):
        raise RuntimeError(f"{path.name} of the toolchain holds something else")
    return found


def write_manifest(compiled_cache: Any, output: Path) -> None:
    """Put down what each file holds; the launcher compares it before the engine starts."""
    files = {
        path.relative_to(output).as_posix(): {
            "size": path.stat().st_size,
            "sha256": compiled_cache.digest_of(path),
        }
        for path in sorted(output.rglob("*"))
        if path.is_file()
    }
    manifest = {"schema": compiled_cache.SCHEMA, "compiler": "neuron", "files": files}
    text = json.dumps(manifest, indent=1, sort_keys=True) + "\n"
    (output / compiled_cache.MANIFEST).write_text(text, encoding="utf-8")


def compiler_of(output: Path) -> str:
    """Name the compilers whose graphs were kept, which is one."""
    return ", ".join(sorted(path.name for path in output.glob("neuronxcc-*")))


if __name__ == "__main__":
    run(work, packages=PACKAGES)
