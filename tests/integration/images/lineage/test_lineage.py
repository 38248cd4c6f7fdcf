"""`packager lineage`: here, on another machine, and from what strangers attached."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from packager.addons.server.jobs.store import JobStore
from packager.addons.server.jobs.values import NewJob, Stage
from packager.core.image import MEDIA_MANIFEST, Descriptor
from packager.images.attached import MEDIA_RECORD, attach_document
from tests.support.commandline import TINY, Done, Packager
from tests.support.doubles.registry import FakeRegistry, sha256

BUILD = ("build", "--model", str(TINY), "--instance", "local", "--base", "scratch", "--quiet")


def built(done: Done) -> str:
    assert done.status == 0, done.err
    return done.out.strip().rpartition("@")[2]


def shown(done: Done) -> dict[str, Any]:
    assert done.status == 0, done.err
    return dict(json.loads(done.out))


def nodes(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {node["kind"]: node for node in document["nodes"]}


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, str]:
    """Another machine's state directory."""
    return {"XDG_STATE_HOME": str(tmp_path / "elsewhere")}


@pytest.mark.parametrize(
    "ref", ["oci:out", "out.record.json", "{digest}", "{prefix}", "tiny-llama"]
)
def test_an_image_is_shown_with_its_model(packager: Packager, ref: str) -> None:
    digest = built(packager(*BUILD, "--output", "oci:out"))

    named = ref.format(digest=digest, prefix=digest.removeprefix("sha256:")[:12])
    found = shown(packager("lineage", named, "--format", "json"))

    assert found["subjects"] == [f"image:{digest}"]
    assert [edge["to"] for edge in found["edges"]] == [f"image:{digest}"]
    assert nodes(found)["model"]["label"] == "tiny-llama (local)"
    assert nodes(found)["image"]["claimed"] is False


def test_a_layout_is_the_one_that_is_there_now(packager: Packager, tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path / "state")}
    built(packager(*BUILD, "--output", "oci:out", env=env))
    (tmp_path / "elsewhere").mkdir()
    away = packager("lineage", "oci:out", cwd=tmp_path / "elsewhere", env=env)
    shutil.rmtree(tmp_path / "out")
    changed = (*BUILD, "--max-total-tokens", "128")
    second = built(packager(*changed, "--output", "oci:out", env=env))

    name = f"oci:{tmp_path}/out:latest"
    found = shown(packager("lineage", name, "--format", "json", env=env))

    assert (away.status, away.out) == (66, "")
    assert found["subjects"] == [f"image:{second}"]
    assert nodes(found)["image"]["claimed"] is False


def test_an_attached_record_is_a_claim(packager: Packager, elsewhere: dict[str, str]) -> None:
    with FakeRegistry() as registry:
        digest = built(packager(*BUILD, "--output", f"{registry.host}/t:1"))
        ref = ("lineage", f"{registry.host}/t:1")
        found = shown(packager(*ref, "--format", "json", env=elsewhere))
        text = packager(*ref, env=elsewhere).out

    assert found["subjects"] == [f"image:{digest}"]
    assert nodes(found)["model"]["claimed"] is True
    assert "└─ model      tiny-llama (local) (claimed)" in text
    assert text.endswith("nothing here proves it\n")


def test_a_copy_elsewhere_keeps_its_lineage(packager: Packager, elsewhere: dict[str, str]) -> None:
    digest = built(packager(*BUILD, "--output", "oci:out"))
    with FakeRegistry(referrers=True) as registry:
        assert packager("push", "oci:out", f"{registry.host}/t:1").status == 0
        assert packager("copy", f"{registry.host}/t:1", "oci:back").status == 0

    found = shown(packager("lineage", "oci:back", "--format", "json", env=elsewhere))

    assert [edge["to"] for edge in found["edges"]] == [f"image:{digest}"]


def test_our_record_wins_over_a_forged_one(packager: Packager, tmp_path: Path) -> None:
    with FakeRegistry(referrers=True) as registry:
        digest = built(packager(*BUILD, "--output", f"{registry.host}/t:1", "--record", "r.json"))
        forged = json.loads((tmp_path / "r.json").read_text())
        forged["served_name"] = "backdoor"
        subject = Descriptor(media_type=MEDIA_MANIFEST, digest=digest, size=1)
        artifact = attach_document(subject, json.dumps(forged).encode(), MEDIA_RECORD)
        for blob in artifact.blobs:
            registry.put("t", blob)
        registry.put_manifest("t", sha256(artifact.manifest), artifact.manifest, MEDIA_MANIFEST)

        found = shown(packager("lineage", f"{registry.host}/t:1", "--format", "json"))

    assert nodes(found)["image"]["label"] == "tiny-llama for local"
    assert nodes(found)["image"]["claimed"] is False


def test_an_unrecorded_image_is_shown_alone(packager: Packager, elsewhere: dict[str, str]) -> None:
    built(packager(*BUILD, "--output", "oci:out"))
    assert packager("copy", "--view", "weights", "oci:out", "oci:view").status == 0

    text = packager("lineage", "oci:view", env=elsewhere).out

    assert "made from: nothing that is recorded" in text


def test_the_job_that_made_an_image_is_shown(packager: Packager, tmp_path: Path) -> None:
    state = tmp_path / "state"
    env = {"XDG_STATE_HOME": str(state)}
    digest = built(packager(*BUILD, "--output", "oci:out", env=env))
    store = JobStore(state / "packager" / "jobs")
    stages = (Stage("build", ("build",)),)
    job = store.create(NewJob(kind="optimization", name="opt-1", document={}, stages=stages))
    job.record.write_bytes((tmp_path / "out.record.json").read_bytes())

    found = shown(packager("lineage", "opt-1", "--format", "json", env=env))

    assert {"from": "job:optimization/opt-1", "to": f"image:{digest}"} in found["edges"]
    assert job.created <= datetime.now(UTC)


def test_tree_and_image_of_one_build_have_one_origin(packager: Packager, tmp_path: Path) -> None:
    outputs = ("--output", "oci:out", "--output", "dir:files")
    assert packager(*BUILD, *outputs).status == 0

    found = shown(packager("lineage", "dir:files", "--format", "json"))
    named = shown(packager("lineage", f"dir:{tmp_path}/files", "--format", "json"))

    assert found == named
    assert [one.partition(":")[0] for one in found["subjects"]] == ["tree"]
    (edge,) = found["edges"]
    image = shown(packager("lineage", "oci:out", "--format", "json"))
    assert edge["from"] in {one["from"] for one in image["edges"]}


def test_a_tree_alone_is_no_image(packager: Packager) -> None:
    packager(*BUILD[:-1], "--weights", "mounted", "--output", "dir:files", "--quiet", status=0)

    found = shown(packager("lineage", "dir:files", "--format", "json"))

    assert set(nodes(found)) == {"model", "tree"}


def test_a_damaged_record_is_left_out_and_told(packager: Packager, tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path / "state")}
    built(packager(*BUILD, "--output", "oci:out", env=env))
    (tmp_path / "state/packager/records/bad\x1b.json").write_text("{")
    (tmp_path / "state/packager/records/fifo.json").mkdir()

    done = packager("lineage", "oci:out", env=env, status=0)

    assert "warning: left out, as it cannot be read:" in done.err
    assert "\x1b" not in done.err


def test_drawings_and_pages_are_written_beside_the_text(packager: Packager, tmp_path: Path) -> None:
    built(packager(*BUILD, "--output", "oci:out"))

    done = packager("lineage", "oci:out", "--output", "l.html", "--format", "svg")

    assert ElementTree.fromstring(done.out).tag == "{http://www.w3.org/2000/svg}svg"
    assert (tmp_path / "l.html").read_text().startswith("<!doctype html>")


def test_a_beginning_of_several_digests_is_refused(packager: Packager, tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path / "state")}
    records = tmp_path / "state/packager/records"
    built(packager(*BUILD, "--output", "oci:out", env=env))
    record = json.loads(next(records.iterdir()).read_text())
    for last in "12":
        record["digest"] = f"sha256:{'ab' * 31}0{last}"
        (records / f"{last}.json").write_text(json.dumps(record))

    done = packager("lineage", "abababab", env=env)

    assert (done.status, done.out) == (2, "")
    assert "'abababab' stands for 2 things" in done.err


@pytest.mark.extended
def test_a_tag_that_moved(packager: Packager, tmp_path: Path, elsewhere: dict[str, str]) -> None:
    with FakeRegistry(referrers=True) as registry:
        ref = f"{registry.host}/t:1"
        before = built(packager(*BUILD, "--output", ref))
        words = (*BUILD, "--served-name", "other", "--output", ref)
        now = built(packager(*words, env=elsewhere))
        found = packager("lineage", ref, "--format", "json")

    [subject] = shown(found)["subjects"]
    assert subject == f"image:{now}"
    assert [edge["to"] for edge in shown(found)["edges"]].count(subject) == 1  # as attached
    assert found.err == (
        f"note: {ref} names {now} now; builds of this machine gave it to {before}\n"
    )
    gone = packager("lineage", ref, "--format", "json")
    assert shown(gone)["subjects"] == [f"image:{before}"]
    assert f"note: what {ref} names now is not known, this is what was built here: " in gone.err
