"""Documents of users and models that somebody hostile wrote: typed, and within bounds.

Each kind of document is given each hostile content, through the command that reads it.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from packager.addons.contrib.foreign_caches.stated import own_words, read_document
from packager.cli import app
from packager.core.errors import PackagerError
from packager.core.trees import Stated
from tests.support.cases import cases, content_of, read_tables
from tests.support.commandline import TINY

# 0 is for what is harmless; 70 is a bug, and so is anything that README's table does not list.
DOCUMENTED = {0, 2, 3, 4, 5, 6, 7, 8, 65, 66, 69, 74, 76, 77}
JOBS = {64, 75, 78}  # besides, what tells schedulers whether to try again

DEEP = 5_000


CONTENTS = {row["id"]: content_of(row) for row in read_tables(__file__)["contents"]}
CONTENTS["many keys"] = b"{" + b",".join(b'"k%d":1' % number for number in range(20_000)) + b"}"


def arranged(kind: Mapping[str, Any], where: Path, content: bytes) -> list[str]:
    """Write the content to its file; return the command that reads it."""
    place = where / kind["file"]
    if kind.get("in_model"):
        place = Path(shutil.copytree(TINY, where / "model")) / kind["file"]
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    given = {"{file}": str(place), "{model}": str(place.parent), "{tiny}": str(TINY)}
    return [
        functools.reduce(lambda text, name: text.replace(name, given[name]), given, word)
        for word in kind["command"].split()
    ]


@cases("kinds")
def test_a_hostile_document_ends_in_a_documented_status(
    case: Mapping[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PACKAGER_DEBUG", "1")
    wrong = {}
    for number, (name, content) in enumerate(CONTENTS.items()):
        where = tmp_path / str(number)
        where.mkdir()
        monkeypatch.chdir(where)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(where / "config"))
        monkeypatch.setenv("XDG_DATA_HOME", str(where / "data"))

        status = app.run(arranged(case, where, content))

        printed = "".join(capsys.readouterr())
        if status not in DOCUMENTED | (JOBS if case["id"] == "job of a warm plan" else set()):
            wrong[name] = f"status {status}: {printed[-1500:]}"
        elif faults := faults_of(printed):
            wrong[name] = faults
        shutil.rmtree(where)

    assert wrong == {}, "\n".join(f"{name}: {why}" for name, why in wrong.items())


def faults_of(printed: str) -> str:
    """Say what is wrong with what was printed; "" where nothing is."""
    if any(line.startswith("error: forged") for line in printed.splitlines()):
        return f"a line was forged: {printed[:300]!r}"
    if len(printed) > 20_000:
        return f"{len(printed)} characters were printed"
    odd = set(printed) & set("\x00\x1b\r\u202e\u2028\ud800")
    return f"not escaped: {odd!r}" if odd else ""


@pytest.mark.parametrize("name", CONTENTS)
def test_a_hostile_key_document_is_refused(name: str, tmp_path: Path) -> None:
    place = tmp_path / "key.json"
    place.write_bytes(CONTENTS[name])

    with pytest.raises(PackagerError):
        read_document(place)


@pytest.mark.parametrize("value", ["[" * DEEP, "9" * 10_000, "NaN", "1e999", "\udce9"])
def test_a_hostile_value_of_a_key_is_taken_as_a_word(value: str) -> None:
    assert own_words(Stated(stated=(f"/shape/max_batch={value}",))) == {"/shape/max_batch": value}
