"""Policies by command: who is held to one, what is looked at, and how skipping shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from packager.cli.wiring.policies import check_running
from packager.cli.wiring.settings import PolicyChoice, Settings
from tests.support.commandline import TINY, Packager
from tests.support.doubles.registry import FakeRegistry
from tests.support.refusals import raises_code

BUILD = ("build", str(TINY), "--instance", "local", "--quiet", "--base")


@pytest.fixture
def registry(packager: Packager, tmp_path: Path) -> Iterator[FakeRegistry]:
    """A registry with a signed image, and with one that others have signed."""
    for name in ("ours", "theirs"):
        public = packager("keys", "make", "image", "--to", f"{name}.pem", status=0).out
        (tmp_path / f"{name}.pub").write_text(public)
    with FakeRegistry(referrers=True) as found:
        for name in ("ours", "theirs"):
            output = ("--output", f"{found.host}/{name}/a:1")
            packager(*BUILD, "scratch", *output, "--sign", f"{name}.pem", status=0)
        policy = tmp_path / "policy.toml"
        policy.write_text(
            f'[[image]]\nnames = ["{found.host}/**"]\nkeys = ["ours.pub"]\n'
            'require = ["signature", "sbom", "provenance"]\n'
            '[[model]]\nnames = ["**"]\n'
        )
        yield found


def own_policy(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a user whose standing policy is the file of the fixture."""
    place = tmp_path / "config" / "packager"
    place.mkdir(parents=True)
    for name in ("policy.toml", "ours.pub"):
        (place / name).write_bytes((tmp_path / name).read_bytes())
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_STATE_HOME": str(tmp_path / "state")}


COMMANDS = {
    "copy": ("copy", "{image}", "oci:out"),
    "build": (*BUILD, "{image}", "--output", "oci:out"),
    "mount": ("mount", "{image}", "there", "--node-cache", "."),
    "node-cache": ("node-cache", "{image}", "cache"),
    "deploy": ("deploy", "kubernetes", "render", "{image}"),
    "verify": ("verify", "{image}"),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_the_users_policy_holds_wherever_an_image_is_used(
    packager: Packager, registry: FakeRegistry, tmp_path: Path, command: tuple[str, ...]
) -> None:
    words = [one.format(image=f"{registry.host}/theirs/a:1") for one in command]

    refused = packager(*words, env=own_policy(tmp_path), status=65)

    assert "no signature and no sbom and no provenance by ours.pub" in refused.err
    assert not (tmp_path / "out").exists()


def test_what_the_policy_lets_pass_is_used_and_skipping_it_is_recorded(
    packager: Packager, registry: FakeRegistry, tmp_path: Path
) -> None:
    env = own_policy(tmp_path)
    ours, theirs = (f"{registry.host}/{name}/a:1" for name in ("ours", "theirs"))

    packager("copy", ours, "oci:a", env=env, status=0)
    packager(*BUILD, ours, "--output", "oci:b", "--base-files", "skip", env=env, status=0)
    assert not (tmp_path / "state/packager/policy.log").exists()
    done = packager("copy", theirs, "oci:c", "--no-policy", env=env, status=0)
    skipped = (*BUILD, theirs, "--output", "oci:d", "--base-files", "skip", "--no-policy")
    packager(*skipped, env=env, status=0)

    assert "--no-policy" in done.err
    assert (tmp_path / "state/packager/policy.log").read_text().count(theirs.rpartition(":")[0]) > 1
    said = [_policy_of(tmp_path / name) for name in "bd"]
    assert said[0].startswith("sha256:")
    assert said[1] == "skipped"


def _policy_of(layout: Path) -> str:
    for blob in (layout / "blobs/sha256").iterdir():
        if (
            blob.stat().st_size < 100_000
            and b'"https://slsa.dev/provenance/v1"' in blob.read_bytes()
        ):
            document = json.loads(blob.read_bytes())
            return str(document["predicate"]["buildDefinition"]["internalParameters"]["policy"])
    return ""


def test_a_tag_that_moves_after_it_was_verified_moves_nothing(
    packager: Packager, registry: FakeRegistry, tmp_path: Path
) -> None:
    image = f"{registry.host}/ours/a"
    policy = ("--policy", str(tmp_path / "policy.toml"))
    verified = packager("verify", f"{image}:1", *policy, status=0).out.strip()
    evil = registry.manifests["theirs/a", "1"][1].replace(b"{", b"{ ", 1)
    registry.put_manifest("ours/a", "1", evil, registry.manifests["theirs/a", "1"][0])

    packager("copy", f"{image}:1", "oci:out", *policy, status=65)
    packager("copy", f"{image}@{verified.rpartition('@')[2]}", "oci:out", *policy, status=0)
    rendered = packager("deploy", "kubernetes", "render", verified, *policy, status=0).out

    assert verified.replace(":1@", "@") in rendered
    assert f"{image}:1" not in rendered


def test_containerd_asks_in_its_own_words(
    packager: Packager, registry: FakeRegistry, tmp_path: Path
) -> None:
    def ask(name: str, digest: str, reason: str = "") -> int:
        words = ("-name", f"{registry.host}/{name}/a:1", "-digest", digest)
        media = ("-stdin-media-type", "application/vnd.oci.image.manifest.v1+json")
        done = packager("verify", "--policy", str(tmp_path / "policy.toml"), *words, *media)
        assert reason in done.out
        return done.status

    digest = registry.tagged("ours/a", "1")
    assert ask("ours", digest) == 0
    assert ask("theirs", digest, "no signature") == 65
    assert ask("ours", f"sha256:{'0' * 64}") == 66


def test_no_command_that_shows_an_image_needs_it_to_pass(
    packager: Packager, registry: FakeRegistry, tmp_path: Path
) -> None:
    env = own_policy(tmp_path)
    for command in ("inspect", "sbom"):
        packager(command, f"{registry.host}/theirs/a:1", env=env, status=0)


def test_an_image_of_the_engine_is_held_to_what_its_registry_has(
    registry: FakeRegistry, tmp_path: Path
) -> None:
    choice = PolicyChoice(is_enforced=True, file=tmp_path / "policy.toml")
    settings = Settings(policy=choice)
    ours, theirs = (
        f"{registry.host}/{name}/a@{registry.tagged(f'{name}/a', '1')}"
        for name in ("ours", "theirs")
    )

    assert check_running("a:1", (ours,), settings)
    for digests, reason in (((theirs,), "no signature"), ((), "no rule for images names it")):
        with raises_code("AgainstPolicy", match=reason):
            check_running("a:1", digests, settings)
    assert not check_running("a:1", (), Settings())
