"""`packager cache`: looking, checking, tidying, handing on, asking why."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from artifact_cache import Rejected, fsck, key_of
from artifact_cache.key import KeyDocument
from packager.cli.app import run
from packager.optimize.keys.documents import CompiledKey
from packager.optimize.keys.parts import Shape
from tests.support.cache_entries import CHECKPOINT, NEURON, TENSORRT, Build
from tests.support.cache_opening import open_local
from tests.support.cases import cases
from tests.support.foreign_trees import optimum_tree


@dataclass
class Said:
    status: int
    out: str
    err: str


class Cache:
    """`packager cache …`, run in this process; its entries are in `root`."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self._capsys = capsys

    def __call__(self, *words: str) -> Said:
        self._capsys.readouterr()
        status = run(["cache", *words])
        said = self._capsys.readouterr()
        return Said(status, said.out, said.err)

    def told(self, *words: str) -> Any:
        """Return the result of a command."""
        return json.loads(self(*words, "--format", "json").out)

    def keys(self, *words: str) -> list[str]:
        return [one["key"] for one in self.told("ls", *words)]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PACKAGER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache/artifacts"


@pytest.fixture
def cache(root: Path, capsys: pytest.CaptureFixture[str]) -> Cache:
    return Cache(root, capsys)


def keep(root: Path, document: KeyDocument, model: str = "acme/tiny", content: bytes = b"1") -> str:
    """Put an entry into the cache; give its key."""
    into = root.parent / f"built-{key_of(document)[:8]}"
    made = open_local(root, builder_id="ci@acme", version="1.0").get_or_build(
        document, Build(content), into, labels={"model": model}
    )
    shutil.rmtree(into)
    assert made.stored
    return made.key


def larger(document: CompiledKey, **changes: int) -> CompiledKey:
    shape = Shape(**{**document.shape.model_dump(), **changes})
    return document.model_copy(update={"shape": shape})


def damage(root: Path) -> None:
    blob = max(root.glob("cas/sha256/??/*"), key=lambda path: path.stat().st_size)
    blob.chmod(0o644)
    blob.write_bytes(b"2" * blob.stat().st_size)


def test_an_empty_cache_is_said_to_be_empty(cache: Cache) -> None:
    assert cache("ls").out == "the cache is empty\n"
    assert cache.told("ls") == []


def test_a_list_shows_kind_model_size_and_age(cache: Cache) -> None:
    key = keep(cache.root, CHECKPOINT)

    [header, row, total] = cache("ls").out.splitlines()

    assert header.split() == ["key", "kind", "model", "size", "built", "used", "took"]
    assert re.fullmatch(
        rf"{key[:12]} +quantized-checkpoint +acme/tiny +\d+ B +just now +just now +(-|0.\d s)", row
    )
    assert total.startswith("1 entry, ")


def test_a_list_can_be_sorted_and_narrowed(cache: Cache) -> None:
    small = keep(cache.root, CHECKPOINT, "b")
    large = keep(cache.root, NEURON, "a", b"123456")

    assert cache.keys("--sort", "size") == [large, small]
    assert cache.keys("--sort", "model") == [large, small]
    assert cache.keys("--kind", "quantized-checkpoint") == [small]


def test_a_few_digits_are_enough_and_too_few_are_explained(cache: Cache) -> None:
    key = keep(cache.root, CHECKPOINT)

    assert key in cache("show", key[:6]).out
    assert key in cache("show", f"quantized-checkpoint/{key}").out
    assert key in cache("show", key[:4].upper()).out
    missing = cache("show", "0000" if not key.startswith("0000") else "ffff")
    assert (missing.status, "no entry's key begins with" in missing.err) == (66, True)
    assert cache("show", "no-key").status == 2


def test_digits_of_two_keys_are_refused_with_both(cache: Cache) -> None:
    keys: list[str] = []
    number = 0
    while len({key[0] for key in keys}) == len(keys):
        keys.append(keep(cache.root, larger(NEURON, max_batch=8 + number), content=b"x"))
        number += 1
    twice = keys[-1][0]

    said = cache("show", twice)

    assert said.status == 2
    assert "too short" in said.err
    assert all(one["shown"].startswith(one["key"][:12]) for one in cache.told("ls"))


def test_an_entry_says_what_decides_it(cache: Cache) -> None:
    key = keep(cache.root, CHECKPOINT)

    text = cache("show", key).out
    document = cache.told("show", key)

    assert "built      just now by ci@acme, packager 1.0" in text
    assert "rank0/model.bin" in text
    assert "/calibration/seed  42" in text
    assert document["keydoc"]["calibration"]["seed"] == 42
    assert document["pins"] == []
    assert document["tier"] == "local"


def test_counts_say_what_was_saved(cache: Cache, tmp_path: Path) -> None:
    keep(cache.root, CHECKPOINT)
    open_local(cache.root).get_or_build(CHECKPOINT, Build(), tmp_path / "again")

    text = cache("stats").out
    document = cache.told("stats")

    assert "hits       50 % of look-ups" in text
    assert document["hit_rate"] == 0.5
    assert document["entries"] == 1
    assert 'event="hit"} 1' in cache("stats", "--format", "prometheus").out


def test_a_sound_cache_verifies(cache: Cache) -> None:
    keep(cache.root, CHECKPOINT)

    said = cache("verify", "--quiet")

    assert said.status == 0
    assert said.out.startswith("1 entry and 3 blobs are sound")


def test_damage_is_found_set_aside_and_shown_by_the_status(cache: Cache) -> None:
    keep(cache.root, CHECKPOINT)
    damage(cache.root)

    looked = cache("verify", "--no-repair", "--format", "json")
    dealt = cache("verify", "--quiet")

    assert looked.status == dealt.status == 65
    assert json.loads(looked.out)["sound"] is False
    assert "set-aside" in dealt.out
    assert cache("ls").out == "the cache is empty\n"
    assert cache("verify", "--quiet").status == 0


def test_a_dry_run_says_what_would_go_and_takes_nothing(cache: Cache) -> None:
    key = keep(cache.root, CHECKPOINT)

    said = cache("gc", "--max-size", "1B", "--min-age", "0s", "--dry-run", "--quiet")

    assert f"{key[:12]}  quantized-checkpoint  acme/tiny" in said.out
    assert "would go" in said.out
    assert len(cache.keys()) == 1


def test_what_is_pinned_stays(cache: Cache) -> None:
    held, gone = keep(cache.root, CHECKPOINT), keep(cache.root, NEURON, "other")
    old(cache.root, held, gone)
    assert cache("pin", held[:8], "--name", "release").out == "release\n"

    said = cache("gc", "--max-age", "1d", "--format", "json")

    assert [one["key"] for one in json.loads(said.out)["removed"]] == [gone]
    assert json.loads(said.out)["by_model"][0]["model"] == "other"
    assert cache.keys() == [held]
    assert "pinned" in cache("ls").out
    assert "release" in cache("show", held).out


def old(root: Path, *keys: str) -> None:
    """Make entries look unused for ten days."""
    for key in keys:
        for path in (*root.glob(f"ac/*/??/{key}.json"), *root.glob(f"use/??/{key}")):
            os.utime(path, (path.stat().st_mtime - 864000,) * 2)


def test_a_pin_is_let_go_by_name_or_by_key(cache: Cache) -> None:
    one, two = keep(cache.root, CHECKPOINT), keep(cache.root, NEURON)
    cache("pin", one, two, "--name", "both")
    cache("pin", "--model", "acme/tiny", "--name", "tiny")

    assert set(cache("pins").out.splitlines()) == {
        f"both  {one[:12]}, {two[:12]}",
        "tiny  model=acme/tiny",
    }
    assert cache("unpin", one[:10]).out == "both\n"
    assert cache.told("pins")["both"]["keys"] == [two]
    assert cache("unpin", "both").out == "both\n"
    assert cache("unpin", two).status == 66
    assert cache("pin").status == 2


@cases("wrong")
def test_wrong_words_end_with_status_2(cache: Cache, words: tuple[str, ...]) -> None:
    said = cache(*words)

    assert said.status == 2
    assert said.out == ""


def test_entries_travel_in_an_archive(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {keep(cache.root, CHECKPOINT), keep(cache.root, NEURON)}
    assert cache("export", "--all", "--to", "entries.tar", "--quiet").out == "entries.tar\n"
    monkeypatch.setenv("PACKAGER_CACHE", str(tmp_path / "other"))

    first = cache("import", "entries.tar")
    again = cache("import", "entries.tar", "--format", "json")

    assert {line.split("/")[1] for line in first.out.split()} == keys
    assert "2 entries imported" in first.err
    assert json.loads(again.out)["published"] == []
    assert set(cache.keys()) == keys
    assert list((tmp_path / "other/work").iterdir()) == []


def test_an_archive_comes_from_a_pipe(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(cache.root, CHECKPOINT)
    cache("export", "--all", "--to", "entries.tar")
    stdin = io.TextIOWrapper(io.BytesIO((tmp_path / "entries.tar").read_bytes()))
    monkeypatch.setattr("sys.stdin", stdin)

    assert cache("import", "-", "--cache-dir", "other").status == 0
    assert len(cache.keys("--cache-dir", "other")) == 1


def test_entries_travel_through_a_layout(cache: Cache) -> None:
    keys = {keep(cache.root, CHECKPOINT), keep(cache.root, NEURON)}

    names = cache("export", "--all", "--to", "oci:layout").out.split()
    first = cache("import", names[0].partition("@")[0], "--cache-dir", "other")
    rest = cache("import", "oci:layout", "--cache-dir", "other")

    assert len(names) == 2
    assert len(first.out.split()) == len(rest.out.split()) == 1
    assert set(cache.keys("--cache-dir", "other")) == keys


def test_one_tag_cannot_name_two_entries(cache: Cache) -> None:
    keep(cache.root, CHECKPOINT)
    keep(cache.root, NEURON)

    assert cache("export", "--all", "--to", "oci:layout:one").status == 2
    assert cache("export", "--all", "--to", "docker:one").status == 2


def test_graphs_of_other_tools_are_imported(cache: Cache, tmp_path: Path) -> None:
    (optimum_tree(tmp_path / "tree") / "MODULE_00000000000000000009+00000000").mkdir()

    said = cache("import", "--from", "optimum-neuron", "tree", "--quiet")

    assert said.out.startswith("neuron/")
    assert "warning: left out: MODULE_00000000000000000009+00000000 was not compiled" in said.err
    assert cache("show", said.out.strip()).status == 0
    assert cache("import", "--from", "neo", "tree").status == 66


def test_only_signed_entries_are_taken_on_demand(cache: Cache, tmp_path: Path) -> None:
    keep(cache.root, CHECKPOINT)
    cache("export", "--all", "--to", "unsigned.tar")
    public = tmp_path / "builder.pub"
    made = cache("keygen")
    public.write_text(made.out)
    keyid = cache("trust", "builder.pub", "--comment", "ci").out.strip()
    optimum_tree(tmp_path / "tree")
    signed = cache("import", "--from", "optimum-neuron", "tree", "--cache-dir", "signed")
    cache("export", "--all", "--to", "signed.tar", "--cache-dir", "signed")

    refused = cache("import", "unsigned.tar", "--require-signed", "--cache-dir", "other")
    taken = cache("import", "signed.tar", "--require-signed", "--cache-dir", "other")

    assert made.out.startswith("-----BEGIN PUBLIC KEY-----")
    assert "the private key is" in made.err
    assert (refused.status, "is not signed" in refused.err) == (77, True)
    assert taken.out == signed.out
    shown = cache("show", taken.out.strip(), "--cache-dir", "other", "--require-signed")
    assert f"signed by  {keyid[:12]}" in shown.out
    assert cache("keygen").status == 2  # never over a key that is there


def test_a_refused_entry_is_shown_as_such(cache: Cache) -> None:
    key = keep(cache.root, CHECKPOINT)

    text = cache("show", key, "--require-signed").out
    checked = cache("verify", "--require-signed", "--quiet")

    assert f"refused    entry {key[:12]} is refused: it is not signed" in text
    assert "1 entries are not signed by a trusted key" in checked.out


def test_what_verify_cannot_read_is_left_and_has_a_status_of_its_own(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(cache.root, CHECKPOINT)

    def broken_disk(path: Path) -> str:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(fsck, "sha256_of", broken_disk)
    said = cache("verify", "--quiet")

    assert said.status == 74
    assert said.out.count("left       blob") == 3
    assert "cannot be read: input/output error" in said.out
    monkeypatch.undo()
    assert len(list(cache.root.glob("cas/*/*/*"))) == 3
    assert len(list(cache.root.glob("ac/*/*/*"))) == 1


@pytest.mark.parametrize("required", [True, False])
def test_trusted_keys_that_hold_nobody_off_are_pointed_out(cache: Cache, required: bool) -> None:
    """Whoever can write to a store can take a signature away."""
    Path("builder.pub").write_text(cache("keygen").out)
    cache("trust", "builder.pub")

    listed = cache("ls", *(["--require-signed"] if required else []))

    assert ("signature was stripped would be accepted" in listed.err) is not required


def failed(root: Path, error: Exception) -> None:
    def build(_: Path) -> None:
        raise error

    with pytest.raises(type(error)):
        open_local(root).get_or_build(TENSORRT, build, root.parent / "failed")
    shutil.rmtree(root.parent / "failed")


def test_a_rejection_is_listed_with_its_log_and_can_be_forgotten(cache: Cache) -> None:
    failed(cache.root, Rejected("no kernel for this shape", log="line one\nline two"))
    key = key_of(TENSORRT)

    assert "not tried again for 23 h" in cache("failures").out
    assert "line two" in cache("show", key[:8]).out
    assert cache.told("failures")[0]["rejected"] is True
    assert cache("clear-negative", "0" * 12).status == 66
    assert cache("clear-negative", key[:8]).out == f"tensorrt-llm-engine/{key[:12]}\n"
    assert cache("failures").out == "nothing has failed\n"
    assert cache("clear-negative", "--all").out == "nothing had failed\n"


def test_the_nearest_entries_of_one_are_explained(cache: Cache) -> None:
    key = keep(cache.root, NEURON)
    other = keep(cache.root, larger(NEURON, max_batch=16, max_input_tokens=2048), "acme/large")

    text = cache("explain", key[:8]).out
    [document] = cache.told("explain", key[:8])

    assert f"{other[:12]} of acme/large, just now: 2 fields differ" in text
    assert "/shape/max_batch         requested 8, cached 16" in text
    assert document["differences"][0] == {"pointer": "/shape/max_batch", "wanted": 8, "found": 16}
