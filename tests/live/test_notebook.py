"""The notebook of the examples, executed: it plans, builds, runs and measures tiny-llama."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import unavailable
from tests.live.tiny_images import TINY_ENGINE
from tests.support.places import ROOT

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500), pytest.mark.xdist_group("engine")]

NOTEBOOK = ROOT / "examples/tiny_llama.ipynb"


def test_the_notebook_runs_from_top_to_bottom_with_readable_output(
    tiny_base: str, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        nbformat: Any = import_module("nbformat")
        nbclient: Any = import_module("nbclient")
    except ImportError:
        unavailable("nbclient")
    (tmp_path / "tiny-llama").symlink_to(ROOT / "examples/tiny-llama")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook: Any = nbformat.read(NOTEBOOK, as_version=4)
    parameters = next(one for one in notebook.cells if "parameters" in one.metadata.get("tags", ()))
    assert "BASE = None" in parameters.source
    parameters.source += f"\nBASE = 'docker:{TINY_ENGINE}'"  # an engine that starts in a blink

    limits = {"timeout": 600, "startup_timeout": 600}
    client = nbclient.NotebookClient(notebook, kernel_name="python3", **limits)
    client.execute(cwd=str(tmp_path))

    told = ["".join(map(text_of, one.get("outputs", ()))) for one in notebook.cells]
    shown = "\n".join(told)
    for words in (
        "tiny-llama on ml.g5.xlarge",
        "What was built",
        "answers at",
        "first token after",
    ):
        assert words in shown, shown
    assert not [one for one in told if len(one) > 40_000]
    assert "from a chat" in shown  # what the engine answers
    assert not any(one["outputs"] for one in nbformat.read(NOTEBOOK, 4).cells if "outputs" in one)


def text_of(output: Any) -> str:
    """Return what a reader sees of an output: its page, or its text."""
    assert output["output_type"] != "error", output
    assert output.get("name") != "stderr", output["text"]
    data = output.get("data", {})
    return str(data.get("text/html") or data.get("text/plain") or output.get("text", ""))
