"""Models and cases that `compare-checkouts` runs: written by the newer checkout, read by both.

    python scripts/_comparison_cases.py DIR [WORD...] > cases.json

The golden cases know their models by headers only; here each becomes a directory with sparse
weights, so that the command line of any version can plan it.  Scales are written: they take 2 GB.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import click  # noqa: E402

from packager.cli.app import app  # noqa: E402
from packager.core.model import ModelFiles, TensorInfo  # noqa: E402
from tests.golden.cases import CASES, Case  # noqa: E402
from tests.support.doubles.models import (  # noqa: E402
    safetensors_bytes,
    write_json,
    write_model,
    write_tokenizer,
)

TINY = str(ROOT / "examples/tiny-llama")
TINY_DRAFT = str(ROOT / "examples/tiny-llama-draft")
HEADS = "medusa_lm_head.safetensors"  # the name that engines look for
PLAN = ("plan", "--format", "json")
FILES = ("build", "--dry-run", "--format", "json", "--base", "scratch")
LISTS = (
    *("families", "sources", "bases", "outputs", "executors", "quantizers", "compilers"),
    *("instances", "accelerators", "models", "architectures", "drafts", "containers"),
    *("techniques", "compatibility", "prices", "registries"),
)
INSTANCES = {
    "vllm": "ml.g5.xlarge",
    "lmi": "ml.g5.2xlarge",
    "tgi": "ml.g5.xlarge",
    "sglang": "ml.g6.xlarge",
    "neuron": "ml.inf2.xlarge",
}
# Beside an image of each family.
BUILDS: Mapping[str, tuple[str, ...]] = {
    "local": ("--instance", "local", "--base", "scratch"),
    "local-draft": ("--instance", "local", "--draft", TINY_DRAFT, "--base", "scratch"),
    "local-ngram": ("--instance", "local", "--draft", "ngram:3", "--base", "scratch"),
    "mounted": ("--instance", "ml.g5.xlarge", "--weights", "mounted", "--base", "scratch"),
    "mounted-lmi": (
        *("--instance", "ml.g5.xlarge", "--family", "lmi"),
        *("--weights", "mounted", "--base", "scratch"),
    ),
    "zstd": ("--instance", "local", "--compression", "zstd", "--base", "scratch"),
    "weights-first": ("--instance", "local", "--layer-order", "weights-first"),
    "split": ("--instance", "local", "--max-layer-size", "2MiB", "--base", "scratch"),
    "named": ("--instance", "local", "--served-name", "chat", "--max-batch", "4"),
}


def main(place: Path, words: list[str]) -> None:
    """Write models below `place`; print the cases whose name has one of the words, as JSON."""
    place.mkdir(parents=True, exist_ok=True)
    base = f"oci:{write_base(place / 'base')}"
    models: dict[int, str] = {}
    commands = {"plan": PLAN, "files": FILES}
    cases = []
    for case in CASES:
        for kind, command in commands.items():
            if is_asked(f"{kind} {case.id}", words):
                argv = [*command, *asked_for(case, place, models)]
                cases.append({"id": f"{kind} {case.id}", "argv": argv})
    others = (*builds(place, base), *keys(place, base), *tables(), *pages(), *helps())
    cases += [case for case in others if is_asked(case["id"], words)]
    json.dump(cases, sys.stdout, indent=1)


def is_asked(name: str, words: list[str]) -> bool:
    """Return whether a case is meant: all are where no word is given."""
    return not words or any(word in name for word in words)


def asked_for(case: Case, place: Path, written: dict[int, str]) -> Iterator[str]:
    """Return a golden case's request as command-line options."""
    instance = case.instance if isinstance(case.instance, str) else case.instance.name
    yield from ("--model", directory_of(case.model, place, written), "--instance", instance)
    if case.family:
        yield from ("--family", case.family)
    for name, value in case.asked.items():
        if name == "draft" and case.draft is not None:
            kind, colon, _ = value.partition(":")
            value = directory_of(case.draft, place, written)
            value = f"{kind}:{value}" if colon else value
        if name == "engine_options":
            for key, setting in value.items():
                yield from ("--engine-option", f"{key}={setting}")
        elif value is True:
            yield f"--{name}"
        else:
            yield from (f"--{name.replace('_', '-')}", str(value))


def builds(place: Path, base: str) -> Iterator[dict[str, Any]]:
    """Images of the examples and of a tiny random model, written to layouts."""
    random = str(write_model(place / "random", shards=2, config={"torch_dtype": "bfloat16"}))
    options = {**BUILDS}
    for family, instance in INSTANCES.items():
        options[family] = ("--instance", instance, "--family", family)
    for model, path in (("tiny-llama", TINY), ("random", random)):
        for name, given in options.items():
            argv = [*("build", "--model", path), *given, *("--output", "oci:out", "--quiet")]
            if "--base" not in given:
                argv += ["--base", base]
            yield {"id": f"image {model} {name}", "argv": argv, "layout": "out"}


def keys(place: Path, base: str) -> Iterator[dict[str, Any]]:
    """Plans of warm-ups, whose jobs have the keys of their results."""
    grid = {
        "defaults": {"base": base, "max_batch": 8, "max_total_tokens": 512},
        "axes": {
            "model": [TINY, str(place / "random")],
            "instance": ["ml.g5.xlarge", "ml.inf2.xlarge", "ml.c7i.4xlarge"],
            "quantize": ["none", "awq,group=64", "gptq,group=64", "fp8", "smoothquant"],
        },
    }
    write_json(place / "grid.json", grid)
    compiled = {
        "defaults": {"base": base, "max_batch": 8, "max_total_tokens": 512, "model": TINY},
        "axes": {
            "instance": ["ml.g5.xlarge", "ml.inf2.xlarge", "local"],
            "compile": ["vllm_cache", "neuron", "tensorrt_llm"],
        },
        "shapes": [
            {"family": "neuron"},
            {"family": "neuron", "tp_degree": 1},
            {"family": "lmi", "container_version": "0.33.0-tensorrtllm0.21.0-cu128"},
            {"family": "lmi", "quantize": "awq,group=64"},
            {"family": "vllm"},
        ],
    }
    write_json(place / "compiled.json", compiled)
    for name in ("grid", "compiled"):
        argv = ["warm", "plan", str(place / f"{name}.json"), "--format", "json"]
        yield {"id": f"keys {name}", "argv": argv}


def tables() -> Iterator[dict[str, Any]]:
    """What the catalog, the tables of plug-ins and the checks of other tools' files print."""
    for name in LISTS:
        yield {"id": f"list {name}", "argv": ["list", name, "--format", "json"]}
    for path in sorted((ROOT / "examples/check").iterdir()):
        argv = ["check", str(path), "--format", "json"]
        yield {"id": f"check {path.name}", "argv": argv}
    yield {"id": "schema of a warm-up", "argv": ["warm", "schema"]}
    ranked = ["plan", "--model", TINY, "--instance", "all", "--goal", "cost", "--format", "json"]
    yield {"id": "rank tiny-llama", "argv": ranked}


def pages() -> Iterator[dict[str, Any]]:
    """Pages of a plan, of a comparison of all instances, and of a refused plan."""
    for name, more in (
        ("plan", ("--instance", "ml.g5.xlarge")),
        ("rank", ("--instance", "all")),
        ("refusal", ("--instance", "ml.g5.xlarge", "--tp-degree", "2")),
    ):
        yield {"id": f"page {name}", "argv": ["plan", "--model", TINY, *more, "--format", "html"]}


def helps(group: click.Group = app, path: tuple[str, ...] = ()) -> Iterator[dict[str, Any]]:
    """The help of every command and group."""
    yield {"id": f"help {' '.join(path)}".strip(), "argv": [*path, "--help"]}
    context = click.Context(group)
    for name in group.list_commands(context):
        below = group.get_command(context, name)
        if isinstance(below, click.Group):
            yield from helps(below, (*path, name))
        else:
            yield {"id": f"help {' '.join((*path, name))}", "argv": [*path, name, "--help"]}


def directory_of(model: ModelFiles, place: Path, written: dict[int, str]) -> str:
    """Write the model once and return where it is."""
    if id(model) not in written:
        written[id(model)] = str(write_sparse(model, place / f"model-{len(written)}"))
    return written[id(model)]


def write_sparse(model: ModelFiles, directory: Path) -> Path:
    """Write a model's documents, and its weights as headers with holes behind them."""
    directory.mkdir(parents=True)
    write_json(directory / "config.json", dict(model.config))
    write_tokenizer(directory)
    if model.chat_template is not None:
        text, tokens = model.chat_template.text, model.chat_template.tokens or ()
        (directory / "chat_template.jinja").write_text(text, encoding="utf-8")
        path = directory / "tokenizer.json"
        document = json.loads(path.read_bytes())
        document["added_tokens"] = [
            {"id": 2 + number, "content": token} for number, token in enumerate(sorted(tokens))
        ]
        write_json(path, document)
    shards: defaultdict[str, list[TensorInfo]] = defaultdict(list)
    for tensor in model.tensors:
        named = HEADS if "medusa_num_heads" in model.config else Path(tensor.file).name
        shards[named].append(tensor)
    for name, tensors in shards.items():
        write_shard(directory / name, tensors)
    if len(shards) > 1:
        index = {tensor.name: name for name, held in shards.items() for tensor in held}
        total = {"total_size": sum(tensor.size for tensor in model.tensors)}
        document = {"metadata": total, "weight_map": index}
        write_json(directory / "model.safetensors.index.json", document)
    return directory


def write_shard(path: Path, tensors: list[TensorInfo]) -> None:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end, scales = 0, []
    for tensor in tensors:
        if tensor.name.endswith("scales"):
            scales.append((end, tensor.size))
        offsets = [end, end + tensor.size]
        header[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": offsets,
        }
        end += tensor.size
    text = safetensors_bytes(header)
    with path.open("wb") as file:
        file.write(text)
        for offset, size in scales:  # a scale of 0 is refused
            file.seek(len(text) + offset)
            file.write(b"\x00\x3c" * (size // 2))  # 1.0 in 16 bits
        file.truncate(len(text) + end)


def write_base(layout: Path) -> Path:
    """Write a layout with an image of one small layer, made without packager."""
    blobs = layout / "blobs/sha256"
    blobs.mkdir(parents=True)
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        entry = tarfile.TarInfo("etc/base")
        entry.size = 5
        archive.addfile(entry, io.BytesIO(b"base\n"))

    def keep(data: bytes, media_type: str) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}

    oci = "application/vnd.oci.image"
    layer = keep(stream.getvalue(), f"{oci}.layer.v1.tar")
    config = {
        "os": "linux",
        "architecture": "amd64",
        "config": {"Env": ["PATH=/usr/bin"], "Entrypoint": ["/entrypoint.sh"]},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
        "history": [{"created_by": "base"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{oci}.manifest.v1+json",
        "config": keep(json.dumps(config).encode(), f"{oci}.config.v1+json"),
        "layers": [layer],
    }
    row = keep(json.dumps(manifest).encode(), f"{oci}.manifest.v1+json")
    row["annotations"] = {"org.opencontainers.image.ref.name": "latest"}
    write_json(layout / "oci-layout", {"imageLayoutVersion": "1.0.0"})
    write_json(layout / "index.json", {"schemaVersion": 2, "manifests": [row]})
    return layout


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), sys.argv[2:])
