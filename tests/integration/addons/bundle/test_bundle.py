"""Bundles: made once, carried in parts, refused when anything changed, loaded into a registry."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from packager.addons.bundle.verify import verify_bundle
from packager.core.events import ignore
from tests.support.cases import cases
from tests.support.commandline import TINY, Done, packager_in, start_packager
from tests.support.processes import run_program
from tests.support.refusals import raises_code

BUILD = ("build", "--model", str(TINY), "--instance", "local", "--base", "scratch", "--quiet")
PARTS = ("--part-size", "1MB")
Run = Callable[..., Done]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a layout `one`, a bundle of it, and a layout of other settings."""
    here = tmp_path_factory.mktemp("bundles")
    run = packager_in(here)
    run(*BUILD, "--output", "oci:one", status=0)
    run(*BUILD, "--max-batch", "16", "--output", "oci:two", status=0)
    run("bundle", "create", "oci:one", "--output", "bundle", *PARTS, status=0)
    return here


def blobs(bundle: Path) -> list[str]:
    return sorted(path.name for path in (bundle / "images/blobs/sha256").iterdir())


def test_a_bundle_arrives_whole_in_another_registry(made: Path, registry: str) -> None:
    run = packager_in(made)
    digest = run("push", "oci:one", f"{registry}/from/tiny:1", status=0).out.strip().split("@")[1]
    run("bundle", "create", f"{registry}/from/tiny:1", "--output", "carried", *PARTS, status=0)

    verified = run("bundle", "verify", "carried", status=0)
    loaded = run("bundle", "load", "carried", f"{registry}/there", status=0)

    assert verified.out == f"from/tiny:1@{digest}\n"
    assert loaded.out == f"{registry}/there/from/tiny:1@{digest}\n"
    [image] = json.loads((made / "carried/bundle.json").read_text())["images"]
    assert image["attached"] >= 1
    copied = run("copy", f"{registry}/there/from/tiny:1", "oci:back", "--format", "json", status=0)
    assert copied.document["attached"] == image["attached"]
    assert max(path.stat().st_size for path in (made / "carried").rglob("*")) <= 1_000_000


def test_a_cut_layout_is_read_as_any_other(made: Path, tmp_path: Path) -> None:
    """Parts are segments of a blob: nothing is put together on the disk first."""
    run = packager_in(tmp_path)

    done = run("copy", f"oci:{made}/bundle/images:image-0", "oci:out", status=0)

    assert (
        done.out.strip().rpartition("@")[2]
        == json.loads((made / "bundle/bundle.json").read_text())["images"][0]["digest"]
    )
    assert all("part" not in path.name for path in (tmp_path / "out/blobs/sha256").iterdir())


def test_what_an_earlier_bundle_has_is_left_out(made: Path, registry: str) -> None:
    run = packager_in(made)
    since = ("--since", "bundle/bundle.json", *PARTS)
    run("bundle", "create", "oci:two", "--output", "next", *since, status=0)

    assert not any("part" in name for name in blobs(made / "next"))
    assert run("bundle", "verify", "next").status == 0
    early = run("bundle", "load", "next", f"{registry}/late", status=66)
    assert "load the earlier bundle first: this one was made --since it" in early.err
    run("push", "oci:one", f"{registry}/late/two:first", status=0)
    assert run("bundle", "load", "next", f"{registry}/late").status == 0


@cases("faults")
def test_a_bundle_that_changed_is_refused(
    made: Path, tmp_path: Path, change: str, told: str, status: int
) -> None:
    shutil.copytree(made / "bundle", tmp_path / "bundle")
    [first, *_] = [name for name in blobs(made / "bundle") if name.endswith(".part-000")]
    blob = f"images/blobs/sha256/{first.removesuffix('.part-000')}"
    run_program("sh", "-c", change, cwd=tmp_path / "bundle", env={"BLOB": blob})

    done = packager_in(tmp_path)("bundle", "verify", "bundle")

    assert (done.status, done.out) == (status, "")
    assert told in done.err


def test_a_bundle_with_other_bytes_leaves_no_tag(made: Path, tmp_path: Path, registry: str) -> None:
    shutil.copytree(made / "bundle", tmp_path / "bundle")
    part = next((tmp_path / "bundle").rglob("*.part-000"))
    part.write_bytes(b"x" + part.read_bytes()[1:])
    run = packager_in(tmp_path)

    done = run("bundle", "load", "bundle", f"{registry}/damaged")

    assert done.status in (65, 74, 76)
    assert run("inspect", f"{registry}/damaged/one:latest").status == 66


def test_a_killed_bundle_goes_on_to_the_same_files(made: Path, tmp_path: Path) -> None:
    run = packager_in(tmp_path)
    command = ("bundle", "create", f"oci:{made}/one", "--output", str(tmp_path / "b"), *PARTS)
    for wait_s in random.Random(7).choices((0.3, 0.6, 0.9, 1.2), k=4):
        started = start_packager(*command, env={})
        time.sleep(wait_s)
        started.kill()
        started.wait(60)
        started.close()
        if (tmp_path / "b/bundle.json").exists():
            shutil.rmtree(tmp_path / "b")

    run(*command, status=0)

    assert (tmp_path / "b/bundle.json").read_bytes() == (made / "bundle/bundle.json").read_bytes()
    assert blobs(tmp_path / "b") == blobs(made / "bundle")


def test_variables_name_wheels_and_no_network(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "bundle", tmp_path / "bundle")
    run = packager_in(tmp_path)

    settings = run("bundle", "env", "bundle", "--format", "json", status=0).document

    assert settings["PIP_NO_INDEX"] == settings["UV_OFFLINE"] == settings["HF_HUB_OFFLINE"] == "1"
    assert "PIP_FIND_LINKS" not in settings
    lines = run("bundle", "env", "bundle", status=0).out
    asked = ["sh", "-c", f"{lines}\nenv"]
    shown = subprocess.run(asked, capture_output=True, text=True, check=True, env={}).stdout
    assert "PIP_NO_INDEX=1" in shown


def test_a_signed_bundle_is_proven_by_its_key_alone(made: Path, tmp_path: Path) -> None:
    run = packager_in(tmp_path)
    for name in ("ours", "theirs"):
        printed = run("keys", "make", "image", "--to", f"{name}.pem", status=0).out
        (tmp_path / f"{name}.pub").write_text(printed)
    run("bundle", "create", f"oci:{made}/one", "--output", "b", "--sign", "ours.pem", status=0)

    assert run("bundle", "verify", "b", "--key", "ours.pub").status == 0
    other = run("bundle", "verify", "b", "--key", "theirs.pub")
    assert (other.status, "no key at hand has signed it" in other.err) == (65, True)
    manifest = tmp_path / "b/bundle.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"0.2.0"', b'"0.2.1"'))
    changed = run("bundle", "load", "b", "127.0.0.1:1", "--key", "ours.pub")
    assert (changed.status, "is of another manifest" in changed.err) == (65, True)


@pytest.mark.parametrize("order", ["manifest first", "manifest last"])
def test_a_transfer_cut_at_twenty_places_says_what_is_missing(
    made: Path, tmp_path: Path, order: str
) -> None:
    """Files arrive one after the other; the one at the cut is shorter, those behind it lack."""
    whole = made / "bundle"
    files = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file())
    is_first = order == "manifest first"
    files.sort(key=lambda path: (path.name == "bundle.json") is not is_first)
    total = sum((whole / path).stat().st_size for path in files)
    for number in range(20):
        left, place = total * number // 20, tmp_path / str(number)
        place.mkdir()
        for path in files:
            data = (whole / path).read_bytes()[:left]
            left -= len(data)
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_bytes(data)
            if not left:
                break
        for is_read in (True, False):
            with raises_code() as refused:
                verify_bundle(place, ignore, is_read=is_read)
            said = refused.value.message
            assert refused.value.exit_code in (65, 66), said
            assert any(word in said for word in ("bundle.json", "is missing", "bytes, not")), said
        shutil.rmtree(place)
    verify_bundle(whole, ignore)
