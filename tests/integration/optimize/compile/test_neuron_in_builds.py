"""Builds for Neuron with graphs that another tool compiled: asked for, imported, baked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.commandline import TINY, Done, packager_in
from tests.support.foreign_trees import NEURON, VERSION, add_module, register

CONFIG = json.loads((TINY / "config.json").read_text())
PLAN = ("--model", str(TINY), "--instance", "ml.inf2.xlarge", "--family", "neuron")
ASKED = ("--container-version", "2.26.1", "--compile", "neuron", "--base", "oci:base")
SHAPE = ("--max-batch", "4", "--max-total-tokens", "1024", "--max-input-tokens", "512")


def refused(done: Done, status: int, said: str) -> None:
    assert done.status == status, done.err
    assert said in done.err


def test_an_imported_tree_is_baked_and_another_batch_is_an_explained_miss(tmp_path: Path) -> None:
    packager = packager_in(tmp_path)
    env = {"PACKAGER_CACHE": str(tmp_path / "cache"), "PACKAGER_TOOLS": str(tmp_path / "tools")}

    def run(*words: str) -> Done:
        return packager(*words, env=env)

    made = run(
        *("build", "--model", str(TINY), "--instance", "local"),
        *("--base", "scratch", "--output", "oci:base"),
    )
    assert made.status == 0, made.err
    tree = tmp_path / "tree" / f"neuronxcc-{VERSION}"
    add_module(tree, 1)
    register(
        tree,
        config={
            name: CONFIG[name]
            for name in ("model_type", "hidden_size", "num_attention_heads", "num_key_value_heads")
        },
        neuron=NEURON,
    )
    building = ("build", *PLAN, *ASKED, *SHAPE, "--tp-degree", "2", "--require-cached")
    refused(run(*building, "--dry-run"), 8, "step 'compile' is not in the cache")
    wanted = run("cache", "explain", *building[1:-1], "--format", "json")
    assert wanted.status == 0, wanted.err
    (tmp_path / "key.json").write_text(wanted.out)

    imported = run(
        *("cache", "import", "--from", "optimum-neuron", str(tmp_path / "tree")),
        *("--as", "key.json", "--config", str(TINY / "config.json")),
    )
    assert imported.status == 0, imported.err

    built = run(*building, "--output", "oci:out", "--record", "record.json")
    assert built.status == 0, built.err
    record: Any = json.loads((tmp_path / "record.json").read_text())
    assert [step["reused"] for step in record["steps"]] == [True]
    assert "compiled" in [layer["role"] for layer in record["layers"]]
    other = [("2" if word == "4" else word) for word in building]
    refused(run(*other, "--dry-run"), 8, "/shape/max_batch")
