"""One digest, whatever the user, the order of directories and the number of threads."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commandline import TINY, Packager
from tests.support.places import ROOT
from tests.support.processes import run_python

BUILD = ("build", "--instance", "local", "--base", "scratch", "--quiet", "--model")

# Directories are listed backwards, and layers are written by another number of threads.
OTHERWISE = """
import os, sys
from packager.images import tee
from packager.cli.app import run

class Entries(list):
    def __enter__(self): return self
    def __exit__(self, *error): pass
    def __next__(self): return self.pop(0)
    def close(self): pass

listdir, scandir = os.listdir, os.scandir
os.listdir = lambda *place: sorted(listdir(*place), reverse={reverse})
os.scandir = lambda *place: Entries(
    sorted(scandir(*place), key=lambda entry: entry.name, reverse={reverse})
)
assert tee.WORKERS
tee.WORKERS = {workers}
sys.exit(run(sys.argv[1:]))
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user may enter, unlike pytest's."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        shutil.copytree(TINY, path / "model")
        yield path


def digest_printed(place: Path, code: str, output: str) -> str:
    own = place / output.replace(":", "-")
    env = {
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "XDG_STATE_HOME": str(own / "state"),
        "XDG_CONFIG_HOME": str(own / "config"),
        "HOME": str(place),
    }
    done = run_python("-c", code, *BUILD, "model", "--output", output, cwd=place, env=env)
    return done.stdout.rpartition("@")[2].strip()


@pytest.mark.extended
def test_order_of_directories_and_number_of_threads_do_not_matter(place: Path) -> None:
    digests = {
        digest_printed(
            place,
            OTHERWISE.format(reverse=reverse, workers=workers),
            f"oci:out-{reverse}-{workers}",
        )
        for reverse in (False, True)
        for workers in (1, 3, 16)
    }

    assert len(digests) == 1


def test_the_user_does_not_matter(place: Path) -> None:
    """The same process builds as root and then as nobody, who may not read Python's own files."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    theirs = place / "theirs"
    shutil.copytree(place / "model", theirs / "model")
    for path in (theirs, *theirs.rglob("*")):
        shutil.chown(path, 65534, 65534)
    code = (
        "import os, sys\n"
        "from packager.cli.app import run\n"
        "os.umask(0o022)\n"  # what the first leaves is for the other to read
        "status = run(sys.argv[1:])\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534); os.umask(0o077)\n"
        f"os.chdir({str(theirs)!r})\n"
        f"os.environ['XDG_STATE_HOME'] = {str(theirs / 'state')!r}\n"
        "print()\n"
        "sys.exit(status or run(sys.argv[1:]))\n"
    )

    printed = digest_printed(place, code, "oci:out").split()

    assert (theirs / "out" / "index.json").stat().st_uid == 65534
    ours = json.loads((place / "out" / "index.json").read_bytes())["manifests"][0]["digest"]
    assert printed == [ours]


@pytest.mark.parametrize("kind", ["directory", "snapshot"])
def test_a_model_named_in_many_spellings_is_one_image(
    kind: str, packager: Packager, own_place: Path
) -> None:
    commit, tiny = "0123456789abcdef0123456789abcdef01234567", own_place / "models--acme--tiny"
    model = tiny / "snapshots" / commit if kind == "snapshot" else own_place / "here" / "tiny"
    model.mkdir(parents=True)
    (tiny / "blobs").mkdir(parents=True, exist_ok=True)
    for at, path in enumerate(sorted(filter(Path.is_file, TINY.iterdir()))):
        shutil.copyfile(path, tiny / "blobs" / f"{at}" if kind == "snapshot" else model / path.name)
        if kind == "snapshot":
            (model / path.name).symlink_to(f"../../blobs/{at}")
    (own_place / "link").symlink_to(model)
    (own_place / "second").symlink_to("link")
    (own_place / "above").symlink_to(model.parent)
    name, near = model.name, model.relative_to(own_place)
    spellings = {  # by what the working directory is
        own_place: [f"{model}", f"{model}/", f"/{model}", f"./{near}//", "link", "second/"]
        + [f"above/{name}", f"above/../{model.parent.name}/{name}"],
        model: [".", f"../{name}"],
        model.parent: [name, f"./{name}/."],
    }

    found: dict[str, list[str]] = {}
    for directory, texts in spellings.items():
        for text in texts:
            output = f"oci:{own_place}/out"
            done = packager(*BUILD, text, "--output", output, cwd=directory, status=0)
            found.setdefault(done.out.rpartition("@")[2], []).append(text)
    assert len(found) == 1, found
