"""The same image in a layout, a real registry and a real engine, seen by independent tools."""

from __future__ import annotations

import hashlib
import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.conftest import need
from tests.support.commandline import TINY, Packager

pytestmark = pytest.mark.live

BUILD = ("build", "--model", str(TINY), "--instance", "local", "--base", "scratch")


def sha256_of(directory: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.iterdir()
        if path.is_file()
    }


def bytes_read_from_weights(trace: str) -> int:
    """Sum what read-like calls took from files ending in .safetensors (strace -y)."""
    pattern = re.compile(r"(?:read|pread64|sendfile|copy_file_range)\(.*?safetensors>.* = (\d+)$")
    return sum(
        int(found.group(1)) for line in trace.splitlines() if (found := pattern.search(line))
    )


@pytest.mark.capability("push")
def test_three_outputs_are_one_image_from_one_read(
    packager: Packager, registry: str, engine: str, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    done = subprocess.run(
        # One file a thread (-ff): in a common one, calls of several threads interrupt each other.
        [need("strace"), "-ff", "-y", "-qq", "-e", "trace=read,pread64,sendfile,copy_file_range"]
        + ["-o", str(trace), sys.executable, "-m", "packager", *BUILD, "--quiet"]
        + ["--output", "oci:out", "--output", f"{registry}/tiny:1", "--output", "docker:tiny:1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr

    digests = {line.rpartition("@")[2] for line in done.stdout.splitlines()}
    assert (len(done.stdout.splitlines()), len(digests)) == (3, 1)
    calls = "\n".join(path.read_text() for path in sorted(tmp_path.glob("trace.*")))
    weights = sum(path.stat().st_size for path in TINY.glob("*.safetensors"))
    headers = 3 * 64 * 1024  # the plan reads each shard's header
    assert weights <= bytes_read_from_weights(calls) <= weights + headers

    [digest] = digests
    for reference in (f"oci:{tmp_path}/out:latest", f"docker://{registry}/tiny:1"):
        seen = subprocess.run(
            [need("skopeo"), "inspect", "--tls-verify=false", reference],
            capture_output=True,
            text=True,
            check=True,
        )
        assert json.loads(seen.stdout)["Digest"] == digest


def test_umoci_unpacks_the_files_of_the_source(packager: Packager, tmp_path: Path) -> None:
    packager(*BUILD, "--quiet", "--output", "oci:out")

    subprocess.run(
        [need("umoci"), "unpack", "--image", f"{tmp_path}/out:latest", str(tmp_path / "bundle")],
        check=True,
        capture_output=True,
    )

    unpacked = sha256_of(tmp_path / "bundle/rootfs/opt/packager/model")
    source = sha256_of(TINY)
    shipped = {name: digest for name, digest in unpacked.items() if name in source}
    assert shipped == {name: source[name] for name in shipped}
    assert {"model.safetensors.index.json", "config.json", "tokenizer.json"} <= set(shipped)
    assert sum(name.endswith(".safetensors") for name in shipped) >= 3


@pytest.mark.capability("known")
def test_second_identical_push_sends_no_blob(
    packager: Packager, registry: str, tmp_path: Path
) -> None:
    arguments = (*BUILD, "--quiet", "--output", f"{registry}/again:1", "--format", "json")
    first = json.loads(packager(*arguments).out)
    second = json.loads(packager(*arguments).out)

    assert first["transfer"]["bytes_sent"] > 8_000_000
    assert (second["transfer"]["bytes_sent"], second["transfer"]["bytes_read"]) == (0, 0)
    assert first["digest"] == second["digest"]


def test_a_killed_push_leaves_no_tag_and_a_rerun_succeeds(
    packager: Packager, registry: str, tmp_path: Path
) -> None:
    for delay_s in (0.3, 0.5, 0.7, 0.9, 1.1):
        reference = f"{registry}/killed{int(delay_s * 10)}:1"
        process = subprocess.Popen(
            [sys.executable, "-m", "packager", *BUILD, "--quiet", "--output", reference],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        time.sleep(delay_s)
        process.send_signal(signal.SIGKILL)
        finished = process.wait() == 0
        assert finished or complete_or_absent(registry, reference.split("/")[1].split(":")[0])

        rerun = packager(*BUILD, "--quiet", "--output", reference)
        assert rerun.status == 0, rerun.err


def complete_or_absent(registry: str, repository: str) -> bool:
    """True when the tag is not there, or everything it names is."""
    url = f"http://{registry}/v2/{repository}"
    accept = {"Accept": "application/vnd.oci.image.manifest.v1+json"}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(f"{url}/manifests/1", headers=accept)
        ) as answer:
            manifest = json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code == 404
    for entry in (manifest["config"], *manifest["layers"]):
        with urllib.request.urlopen(
            urllib.request.Request(f"{url}/blobs/{entry['digest']}", method="HEAD")
        ) as answer:
            assert int(answer.headers["Content-Length"]) == entry["size"]
    return True


def test_a_base_in_the_same_registry_is_mounted_not_sent(
    packager: Packager, registry: str, tmp_path: Path
) -> None:
    draft = TINY.with_name("tiny-llama-draft")
    base = packager(
        *("build", "--model", str(draft), "--instance", "local", "--base", "scratch"),
        *("--quiet", "--output", f"{registry}/base:1"),
    )
    assert base.status == 0, base.err

    done = packager(
        *("build", "--model", str(TINY), "--instance", "ml.g5.xlarge", "--family", "lmi"),
        *("--base", f"{registry}/base:1", "--output", f"{registry}/lmi:1", "--quiet"),
        *("--format", "json"),
    )

    assert done.status == 0, done.err
    record = json.loads(done.out)
    assert record["base"]["digest"] == base.out.strip().rpartition("@")[2]
    ours = [layer["size"] for layer in record["layers"] if layer["role"] != "base"]
    assert len(ours) < len(record["layers"])
    assert sum(ours) <= record["transfer"]["bytes_sent"] < sum(ours) + 20_000
    properties = file_of(registry, "lmi", "opt/packager/model/serving.properties")
    assert "engine=Python" in properties.splitlines()
    assert "option.tensor_parallel_degree=1" in properties.splitlines()


def file_of(registry: str, repository: str, path: str) -> str:
    """One file of an image, from its last layer, through skopeo's eyes."""
    import io
    import tarfile

    raw = subprocess.run(
        [need("skopeo"), "inspect", "--raw", "--tls-verify=false"]
        + [f"docker://{registry}/{repository}:1"],
        capture_output=True,
        check=True,
    )
    layer = json.loads(raw.stdout)["layers"][-1]["digest"]
    with urllib.request.urlopen(f"http://{registry}/v2/{repository}/blobs/{layer}") as answer:
        data = io.BytesIO(answer.read())
    with tarfile.open(fileobj=data) as archive:
        member = archive.extractfile(path)
        assert member is not None
        return member.read().decode()
