"""The script that reads SGLang's parser, given small wheels made like SGLang's."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

from tests.support.places import SCRIPTS


def source(name: str) -> str:
    """Read a file like one of the engine's."""
    return (Path(__file__).parent / "corpus" / "sources" / f"{name}.txt").read_text("utf-8")


SERVER_ARGS = source("server_args.py")
PARSERS = source("parsers.py")
ALGORITHMS = source("algorithms.py")


def read(place: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run the script on a wheel of these files, without any package of this environment."""
    files = {
        "sglang/__init__.py": "raise ImportError('not wanted')",
        "sglang/srt/__init__.py": "",
        "sglang/srt/server_args.py": SERVER_ARGS.replace("TYPE", changes.get("of_type", "float")),
        "sglang/srt/parsers.py": changes.get("parsers", PARSERS),
        "sglang/srt/speculative/__init__.py": "",
        "sglang/srt/speculative/spec_info.py": ALGORITHMS,
        "sglang-0.9.1.dist-info/METADATA": "Metadata-Version: 2.4\nName: sglang\nVersion: 0.9.1\n",
    }
    wheel = place / "sglang-0.9.1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return subprocess.run(
        [sys.executable, str(SCRIPTS / "engine-options"), "sglang", str(wheel)],
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_sglangs_parser_is_read_where_neither_torch_nor_kernels_are(tmp_path: Path) -> None:
    done = read(tmp_path)

    assert done.returncode == 0, done.stderr
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

    done = read(tmp_path, parsers=replaced)

    assert (done.returncode, done.stdout) == (1, "")
    assert "stand-in" in done.stderr


def test_a_type_of_a_package_that_was_replaced_is_not_written_down(tmp_path: Path) -> None:
    done = read(tmp_path, of_type="nn.Size")

    assert (done.returncode, done.stdout) == (1, "")
    assert "stand-in" in done.stderr
