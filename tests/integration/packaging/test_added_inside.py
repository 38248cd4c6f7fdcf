"""A field of a request and a method of llm-compressor, each added to a copy of packager.

CONTRIBUTING.md says which files that takes: a row that names too few or too many fails here.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import ROOT
from tests.support.processes import run_python

COPIED = ("packager", "artifact_cache", "templates", "containers")
MODEL = ROOT / "examples" / "tiny-llama"
WORKER = "containers/tools/llmcompressor/recipes.py"
# A file: the line before which something is put, and what.
FIELD = {
    "packager/core/request.py": (
        "    region: str | None = Field(",
        "    greeting: str | None = Field(default=None, description='what it says first')\n",
    ),
}
QUANTIZER = "packager/optimize/quantize/llmcompressor.py"
OPTIONS = "packager/optimize/quantize/llmcompressor_options.py"
METHOD = {
    QUANTIZER: ('        "rtn": (SYMMETRIC, EIGHT_BITS),\n', '        "nearest": (SYMMETRIC,),\n'),
    OPTIONS: ('    "rtn": frozenset(', '    "nearest": frozenset({"group"}),\n'),
    "packager/estimate/sizing/data/quantizable.toml": (
        'rtn = "rounded"\n',
        'nearest = "rounded"\n',
    ),
    "packager/catalog/data/techniques.toml": (
        '[[technique]]\nname = "rtn"\n',
        '[[technique]]\nname = "nearest"\nkind = "quantizer"\ngives = "W4A16"\n'
        'summary = "rounded"\nfamilies = ["vllm"]\ndevices = ["nvidia"]\nsource = "here"\n'
        'date = "2026-11-30"\n\n',
    ),
    WORKER: ("TARGETS = [", ""),
}
# What is done alike for the method beside it.
ALIKE = {
    QUANTIZER: {'"gptq" | "rtn":': '"gptq" | "rtn" | "nearest":'},
    OPTIONS: {'"w4afp8", "rtn"})': '"w4afp8", "rtn", "nearest"})'},
    WORKER: {
        '"gptq" | "rtn" |': '"gptq" | "rtn" | "nearest" |',
        '"nvfp4" | "rtn" |': '"nvfp4" | "rtn" | "nearest" |',
        'ROUNDED = ("int8", "rtn",': 'ROUNDED = ("int8", "rtn", "nearest",',
    },
}


def copy_with(place: Path, edits: Mapping[str, tuple[str, str]]) -> Path:
    """Copy the product; put what the edits add before their lines."""
    for name in COPIED:
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name, (line, added) in edits.items():
        changes = {line: added + line, **(ALIKE.get(name, {}) if edits is METHOD else {})}
        text = (place / name).read_text(encoding="utf-8")
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new, 1)
        (place / name).write_text(text, encoding="utf-8")
    return place


def run(place: Path, *words: str) -> str:
    """Run the copy's packager as a new user."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(place),
        "HOME": str(place / "home"),
    }
    return run_python("-m", "packager", *words, cwd=place, env=environment, alone=True).stdout


def plan(place: Path, *options: str) -> dict[str, Any]:
    words = ("--model", str(MODEL), "--instance", "ml.g5.xlarge", "--format", "json")
    return dict(json.loads(run(place, "plan", *words, *options)))


@pytest.mark.parametrize(
    ("what", "edits"), [("a field of a request", FIELD), ("a quantization method", METHOD)]
)
def test_the_page_names_every_file(what: str, edits: Mapping[str, object]) -> None:
    rows = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()
    (row,) = (row for row in rows if row.startswith(f"| {what} "))

    assert set(re.findall(r"`((?:packager|containers)/[^`]+)`", row)) == edits.keys()


def test_a_field_of_a_request_is_an_option_of_plan(tmp_path: Path) -> None:
    copy = copy_with(tmp_path, FIELD)

    assert "--greeting" in run(copy, "plan", "--help-all")
    assert plan(copy, "--greeting", "hello")["instance"]["name"] == "ml.g5.xlarge"


def test_a_method_is_planned_listed_and_known_to_the_worker(tmp_path: Path) -> None:
    copy = copy_with(tmp_path, METHOD)

    found = plan(copy, "--quantize", "nearest,group=64")["quantization"]
    assert (found["method"], found["scheme"], found["group_size"]) == ("nearest", "W4A16", 64)
    listed = json.loads(run(copy, "list", "techniques", "--format", "json"))
    assert "nearest" in {row["name"] for row in listed}
    source = (copy / WORKER).read_text(encoding="utf-8")
    known: dict[str, Any] = {"Rejected": ValueError}
    for part in ast.parse(source).body:
        if isinstance(part, ast.FunctionDef) and part.name == "preset_of":
            part.returns, part.args.args[0].annotation = None, None
            exec(compile(ast.Module([part], []), WORKER, "exec"), known)
    assert known["preset_of"]({"method": "nearest", "symmetric": True}) == "W4A16"
