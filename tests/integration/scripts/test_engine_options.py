"""The script that reads SGLang's parser, given small wheels made like SGLang's."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from tests.support.cases import read_tables
from tests.support.places import SCRIPTS
from tests.support.processes import run_python

SOURCES = Path(__file__).parent / "corpus" / "sources"


def read(place: Path, *, status: int = 0, **changes: str) -> CompletedProcess[str]:
    """Run the script on a wheel of these files, without any package of this environment."""
    wheel = place / "sglang-0.9.1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, file in read_tables(__file__)["files"].items():
            text = file.get("text", "")
            if "source" in file:
                text = (SOURCES / f"{file['source']}.txt").read_text("utf-8")
            text = changes.get(str(file.get("source")), text)
            archive.writestr(name, text.replace("TYPE", changes.get("of_type", "float")))
    return run_python(SCRIPTS / "engine-options", "sglang", wheel, status=status)


def test_sglangs_parser_is_read_where_neither_torch_nor_kernels_are(tmp_path: Path) -> None:
    done = read(tmp_path)

    document: dict[str, Any] = json.loads(done.stdout)
    options = document["options"]
    assert (document["engine"], document["version"]) == ("sglang", "0.9.1")
    assert options["tp-size"] == {"type": "int", "aliases": ["tensor-parallel-size"]}
    assert options["parser"] == {"type": "text", "choices": ["qwen25", "llama3"]}
    assert options["cuda-graph-bs"] == {"type": "int", "many": True}
    assert (options["enable-lora"], options["fdfo"]) == ({"type": "flag"}, {"type": "switch"})
    assert options["option-7"] == {"type": "float"}
    assert options["speculative-algorithm"]["choices"] == [
        *("EAGLE", "NEXTN", "NGRAM"),
        *("eagle", "nextn", "ngram"),  # any text is made capitals
    ]
    assert document["draft_methods"] == ["EAGLE", "NEXTN", "NGRAM"]


def test_an_option_that_only_says_that_it_is_gone_is_none(tmp_path: Path) -> None:
    assert "removed" not in json.loads(read(tmp_path).stdout)["options"]


def test_choices_of_a_package_that_was_replaced_are_not_written_down(tmp_path: Path) -> None:
    """An empty list of choices would have been shipped, and every value taken."""
    replaced = "from xgrammar import PARSERS\n\nModel = None\n"

    done = read(tmp_path, status=1, **{"parsers.py": replaced})

    assert done.stdout == ""
    assert "stand-in" in done.stderr


def test_a_type_of_a_package_that_was_replaced_is_not_written_down(tmp_path: Path) -> None:
    done = read(tmp_path, status=1, of_type="nn.Size")

    assert done.stdout == ""
    assert "stand-in" in done.stderr
