"""Which architectures the engines have, and what each of them does."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.support.places import ROOT
from tests.support.processes import run_python


def test_the_lists_are_read_from_source_without_importing_it(tmp_path: Path) -> None:
    """The script that makes data/engines.json, on two versions of a small registry."""
    for version, names in (("1.9.0", ("AForCausalLM",)), ("1.10.0", ("AForCausalLM", "BModel"))):
        models = tmp_path / version / "vllm" / "model_executor" / "models"
        models.mkdir(parents=True)
        rows = ", ".join(f'"{name}": ("m", "{name}")' for name in names if name[0] == "A")
        others = ", ".join(f'"{name}": ("m", "{name}")' for name in names if name[0] == "B")
        text = (
            "import not_installed\n"
            f"_TEXT_GENERATION_MODELS = {{{rows}}}\n"
            f"_EMBEDDING_MODELS = {{{others}, **{{k: v for k, v in []}}}}\n"
        ).replace("{, ", "{")
        ast.parse(text)
        (models / "registry.py").write_text(text)
    script = ROOT / "scripts" / "engine-architectures"

    told = run_python(script, "--date", "2026-11-22", f"vllm={tmp_path}").stdout

    assert '"versions": ["1.9.0", "1.10.0"]' in told
    assert '"AForCausalLM": ["text", ["", ""]]' in told
    assert '"BModel": ["embedding", ["1.10.0", ""]]' in told
