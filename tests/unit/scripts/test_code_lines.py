"""What `scripts/count-lines` counts."""

from __future__ import annotations

from pathlib import Path

from tests.support.cases import cases, read_tables
from tests.support.places import SCRIPTS
from tests.support.workers import load

TABLES = read_tables(__file__)


code = load(SCRIPTS / "_code_lines.py")


def read(root: Path, path: str, text: str) -> object:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text, encoding="utf-8")
    return code.read_file(root, path)


@cases("lines_with_code_count_and_no_others")
def test_lines_with_code_count_and_no_others(
    tmp_path: Path, path: str, text: str, lines: list[str]
) -> None:
    assert list(read(tmp_path, path, text).lines) == lines


def test_a_room_has_classes_chains_a_floor_and_names_that_others_use(tmp_path: Path) -> None:
    files = TABLES["a_room_has_classes_chains_a_floor_and_names_that_others_use"]

    rooms = code.summarize([read(tmp_path, path, text) for path, text in files.items()])

    core = rooms["packager/core"]
    assert (core.classes, core.dataclasses, core.exceptions, core.protocols) == (4, 1, 2, 1)
    assert core.used_outside == {"gib", "Size"}
    assert (core.chain, core.floor) == (2, 2)
    assert (rooms["packager/catalog"].floor, rooms["packager/pipeline"].floor) == (1, 3)
    assert rooms["packager/catalog"].used_outside == {"Base"}


def test_modules_that_import_each_other_count_together() -> None:
    graph = {"a": {"b"}, "b": {"c", "d"}, "c": {"b"}, "d": set(), "e": {"a", "d"}}

    assert code.longest_lines(graph) == {"a": 4, "b": 3, "c": 3, "d": 1, "e": 5}
