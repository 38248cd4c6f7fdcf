"""`packager cache`: looking, checking, tidying, handing on, asking why."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.cli.app import run
from tests.support.cache_entries import CHECKPOINT
from tests.support.commandline import TINY
from tests.support.doubles.registry import FakeRegistry
from tests.support.doubles.s3 import Bucket, bucket_server
from tests.support.tool_steps import OUTSIDE
from tests.unit.optimize.cache.test_cache_commands import Cache, keep
from tests.unit.optimize.cache.test_cache_commands import cache as cache
from tests.unit.optimize.cache.test_cache_commands import root as root

LOCAL = ["--model", str(TINY), "--instance", "local"]
BUILD = ["build", *LOCAL, "--base", "scratch", "--quiet"]


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the demo tools those that quantize."""
    monkeypatch.setenv("PYTHONPATH", str(OUTSIDE))
    monkeypatch.syspath_prepend(str(OUTSIDE))
    monkeypatch.setenv("PACKAGER_TOOLS", str(tmp_path / "tools"))


def test_an_entry_travels_through_a_registry(cache: Cache) -> None:
    key = keep(cache.root, CHECKPOINT)
    with FakeRegistry() as registry:
        name = cache("export", key, "--to", f"{registry.host}/models/cache").out
        reference = name.partition("@")[0]
        said = cache("import", reference, "--cache-dir", "other")

    assert reference.endswith(f"/models/cache:quantized-checkpoint-{key[:16]}")
    assert said.out == f"quantized-checkpoint/{key}\n"


@pytest.mark.usefixtures("tools")
def test_why_a_build_missed_can_be_asked_before_and_after(cache: Cache) -> None:
    request = [*LOCAL, "--served-name", "tiny"]
    build = [*BUILD, "--served-name", "tiny", "--output", "oci:out"]

    assert run([*build, "--quantize", "demo-copy,seed=1"]) == 0
    before = cache("explain", *request, "--quantize", "demo-copy,seed=2")
    assert run([*build, "--quantize", "demo-copy,seed=2"]) == 0
    after = cache("explain", "--last")
    assert run([*build, "--quantize", "demo-copy,seed=2"]) == 0
    hit = cache("explain", "--last")
    plain = cache("explain", *request)

    for said in (before, after):
        assert said.out.startswith("quantize: miss (")
        assert "of tiny, just now: 1 field differs" in said.out
        assert "/calibration/seed  requested 2, cached 1" in said.out
    assert hit.out.startswith("quantize: hit (")
    assert plain.status == 2  # nothing would be asked
    assert "tiny" in cache("ls").out


@pytest.mark.usefixtures("tools")
def test_what_ended_a_build_without_its_artifact_can_be_explained(cache: Cache) -> None:
    build = [*BUILD, "--served-name", "tiny"]
    assert run([*build, "--output", "oci:out", "--quantize", "demo-copy,seed=1"]) == 0

    asked = ["--require-cached", "--dry-run", "--quantize"]
    assert run([*build, *asked, "demo-copy,seed=2"]) == 8
    miss = cache("explain", "--last")
    assert run([*build, *asked, "demo-copy,seed=1"]) == 0
    hit = cache("explain", "--last")
    assert run([*build, "--dry-run", "--quantize", "demo-copy,seed=2"]) == 0
    after = cache("explain", "--last")

    assert miss.out.startswith("quantize: miss (")
    assert "/calibration/seed  requested 2, cached 1" in miss.out
    assert hit.out.startswith("quantize: hit (")
    assert after.out == hit.out  # a dry run that may run the step: no look-up decided anything


@pytest.mark.usefixtures("tools")
def test_a_build_shares_by_its_settings_and_a_second_machine_hits(
    cache: Cache,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PACKAGER_CACHE_SHARED", f"dir:{tmp_path}/shared")
    build = [*BUILD[:-1], "--quantize", "demo-copy", "--output", "oci:out"]
    assert run(build) == 0
    capsys.readouterr()

    monkeypatch.setenv("PACKAGER_CACHE", str(tmp_path / "machine-2"))
    assert run(build) == 0
    hit = capsys.readouterr().err
    bad = tmp_path / "shared-2"
    bad.mkdir(mode=0o777)
    bad.chmod(0o777)
    monkeypatch.setenv("PACKAGER_CACHE_SHARED", f"dir:{bad}")
    assert run([*build, "--cache-dir", "machine-3"]) == 0
    off = capsys.readouterr().err

    assert "quantize: taken from the cache" in hit
    totals = cache.told("stats")["totals"]
    assert [(one["event"], one["tier"]) for one in totals] == [("hit", f"dir:{tmp_path}/shared")]
    assert off.count(f"dir:{bad} is off") == 1


@pytest.mark.usefixtures("tools")
def test_machines_share_through_a_bucket(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    build = [*BUILD, "--quantize", "demo-copy", "--output", "oci:out"]
    with bucket_server() as server:
        bucket = Bucket(server)
        for name, value in bucket.environment.items():
            monkeypatch.setenv(name, value)
        shared = ["--cache-shared", f"{bucket.url}/team"]
        assert run([*build, *shared]) == 0
        assert run([*build, *shared, "--cache-dir", "second"]) == 0
        key = cache.keys()[0]
        (listed,) = cache.told("ls", "--cache-dir", "third", *shared)
        assert (listed["key"], listed["shared"]) == (key, True)
        assert cache.told("ls", "--cache-dir", "third") == []
        far = cache("show", key, "--cache-dir", "third", *shared)

    totals = cache.told("stats", "--cache-dir", "second")["totals"]
    assert [(one["event"], one["tier"]) for one in totals] == [("hit", f"{bucket.url}/team")]
    assert f"found in   {bucket.url}/team" in far.out
