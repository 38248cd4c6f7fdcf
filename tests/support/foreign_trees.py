"""Trees as optimum-neuron and Neo leave them, with small graphs of the right form."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import struct
import tarfile
from pathlib import Path
from typing import Any

from tests.support.places import DATA

VERSION = "2.21.33363.0+82129205"
CONFIG: dict[str, Any] = json.loads((DATA / "neuron" / "config.json").read_bytes())
NEURON: dict[str, Any] = json.loads((DATA / "neuron" / "neuron_config.json").read_bytes())
FLAGS = ("--auto-cast=none", "--model-type=transformer", "-O2", "--lnc=1", "--target", "trn1")


def neff(*, cores: int = 1, payload: bytes = b"graph") -> bytes:
    """A file with a NEFF's header and a small gzipped tar behind it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        member = tarfile.TarInfo("kelf-0.json")
        member.size = len(payload)
        tar.addfile(member, io.BytesIO(payload))
    data = gzip.compress(packed.getvalue(), mtime=0)
    head = struct.pack("<QQQQQ128s", 2, 1024, len(data), 2, 0, b"2.0.21884.0%kaena-tools")
    head = head.ljust(552, b"\0") + struct.pack("<I", cores)
    return head.ljust(1024, b"\0") + data


def add_module(
    cache: Path, number: int, *, flags: tuple[str, ...] | None = FLAGS, cores: int = 1
) -> Path:
    """Add a compiled graph to `neuronxcc-…`."""
    digest = hashlib.md5(" ".join(flags or ()).encode()).hexdigest()[:8]
    module = cache / f"MODULE_{number:020x}+{digest}"
    module.mkdir(parents=True)
    (module / "model.neff").write_bytes(neff(cores=cores, payload=b"graph %d" % number))
    (module / "model.done").write_bytes(b"")
    (module / "model.hlo_module.pb").write_bytes(b"hlo %d" % number)
    if flags is not None:
        (module / "compile_flags.json").write_text(json.dumps(list(flags)))
    return module


def register(
    cache: Path,
    *,
    model: str = "acme/tiny",
    config: dict[str, Any] = CONFIG,
    neuron: dict[str, Any] = NEURON,
) -> Path:
    """Register a model, with the alias that optimum-neuron links to the entry."""
    task = "text-generation"
    named = {"model_type": config["model_type"], "task": task, "config": config}
    digest = hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()
    whole = {**config, "neuron": neuron, "_entry_class": "SingleModelCacheEntry"}
    text = json.dumps({**whole, "_model_id": model, "_task": task}, indent=2, sort_keys=True)
    name = f"{hashlib.sha512(text.encode()).hexdigest()[:20]}.json"
    path = cache / "0_REGISTRY/0.4.5" / digest / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    alias = cache / "0_REGISTRY/0.4.5" / config["model_type"] / model / name
    alias.parent.mkdir(parents=True, exist_ok=True)
    alias.symlink_to(path)
    return path


def optimum_tree(root: Path) -> Path:
    """One model, compiled into two graphs; give the compiler's directory."""
    cache = root / f"neuronxcc-{VERSION}"
    add_module(cache, 1)
    add_module(cache, 2)
    register(cache)
    return cache


def neo_tree(root: Path, properties: str = "") -> Path:
    """What Neo writes beside the model's files; give the compiler's directory."""
    cache = root / "PRE_COMPILED_NEURON_GRAPH_INFER" / f"neuronxcc-{VERSION}"
    add_module(cache, 1)
    (root / "serving.properties").write_text(
        properties
        or "engine=Python\noption.tensor_parallel_degree=2\noption.n_positions=1024\n"
        "option.max_rolling_batch_size=4\noption.rolling_batch=auto\noption.dtype=fp16\n"
        "option.model_id=/opt/ml/model\n"
    )
    (root / "config.json").write_text(json.dumps(CONFIG))
    return cache
