"""Reading compiler caches without believing them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from packager.addons.contrib.foreign_caches.neff import BadNeff, read_neff_header
from packager.addons.contrib.foreign_caches.neo import find_neo_outputs
from packager.addons.contrib.foreign_caches.neuron import find_compiler_caches, modules_named
from packager.addons.contrib.foreign_caches.optimum_neuron import read_registry
from packager.core.errors import NotFound
from tests.support.cases import read_tables
from tests.support.foreign_trees import VERSION, add_module, neff, neo_tree, optimum_tree, register


def test_a_neff_says_how_many_cores_act_as_one(tmp_path: Path) -> None:
    (tmp_path / "model.neff").write_bytes(neff(cores=2))

    header = read_neff_header(tmp_path / "model.neff")

    assert (header.logical_core_size, header.label) == (2, "2.0.21884.0%kaena-tools")


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data + b"x",
        lambda data: data[:1000],
        lambda data: b"",
        lambda data: b"\x80\x04" + data[2:],
        lambda data: data[:24] + b"\x03" + data[25:],
        lambda data: data[:1024] + b"PK" + data[1026:],
        lambda data: data[:552] + b"\xff" + data[553:],
    ],
    ids=["cut", "longer", "half", "empty", "pickle", "version", "zip", "cores"],
)
def test_what_is_no_neff_is_refused(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    (tmp_path / "model.neff").write_bytes(damage(neff()))

    with pytest.raises(BadNeff):
        read_neff_header(tmp_path / "model.neff")


def test_graphs_are_found_with_their_flags(tmp_path: Path) -> None:
    optimum_tree(tmp_path)

    [cache] = find_compiler_caches(tmp_path)

    assert cache.version == VERSION
    assert cache.left_out == ()
    first = cache.modules[0]
    assert (first.target, first.auto_cast, first.logical_core_size) == ("trn1", "none", 1)
    names = [path.rpartition("/")[2] for path, _ in first.files]
    assert names == read_tables(__file__)["files_of_an_entry"]


def link_neff(module: Path) -> None:
    (module / "model.neff").unlink()
    (module / "model.neff").symlink_to("/etc/passwd")


def fail(module: Path) -> None:
    (module / "model.neff").unlink()
    (module / "model.log").write_text("error")


FLAGS = '["--target", "trn2"]'


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (
            lambda module: (module / "compile_flags.json").write_text(FLAGS),
            "its flags are not those of its name",
        ),
        (link_neff, "'model.neff' in it is a link or no file"),
        (
            lambda module: (module / "model.pt").touch(),
            "'model.pt' in it is not a file of the compiler's",
        ),
        (fail, "failed to compile"),
        (lambda module: (module / "model.done").unlink(), "was not compiled to its end"),
        (
            lambda module: (module / "model.neff").write_bytes(neff(cores=2)),
            "its flags say --lnc=1, its NEFF 2",
        ),
        (lambda module: (module / "more").mkdir(), "'more' in it is a link or no file"),
    ],
    ids=["flags", "link", "pickle", "failed", "unfinished", "cores", "directory"],
)
def test_a_graph_of_which_something_does_not_fit_is_left_out(
    tmp_path: Path, spoil: Callable[[Path], None], reason: str
) -> None:
    module = add_module(optimum_tree(tmp_path), 3)
    spoil(module)

    [found] = find_compiler_caches(tmp_path)

    assert len(found.modules) == 2
    [(name, why)] = found.left_out
    assert name == module.name
    assert reason in why


def test_a_linked_graph_and_odd_names_are_left_out(tmp_path: Path) -> None:
    cache = optimum_tree(tmp_path)
    module = add_module(cache, 3)
    module.rename(tmp_path / "elsewhere")
    module.symlink_to(tmp_path / "elsewhere")
    (cache / "MODULE_..%2f+00000000").mkdir()

    [found] = find_compiler_caches(tmp_path)

    assert len(found.modules) == 2
    assert len(found.left_out) == 2


def test_the_registry_is_read_and_its_aliases_are_not(tmp_path: Path) -> None:
    optimum_tree(tmp_path)

    [entry] = read_registry(tmp_path).entries

    assert (entry.model, entry.task, entry.cache.version) == (
        "acme/tiny",
        "text-generation",
        VERSION,
    )


def change(path: Path) -> None:
    path.write_text(path.read_text().replace('"tp_degree": 2', '"tp_degree": 8'))


def move(path: Path) -> None:
    place = path.parent.with_name("0" * 64)
    path.parent.rename(place)


def link(path: Path) -> None:
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (change, "its name is not the hash of what it holds"),
        (move, "its directory is not the digest of its config"),
        (link, "it is a link"),
    ],
)
def test_a_registry_file_that_was_touched_is_left_out(
    tmp_path: Path, spoil: Callable[[Path], None], reason: str
) -> None:
    cache = tmp_path / f"neuronxcc-{VERSION}"
    add_module(cache, 1)
    spoil(register(cache))

    registry = read_registry(tmp_path)

    assert registry.entries == ()
    assert reason in registry.left_out[0][1]


def test_an_entry_of_another_compiler_is_left_out(tmp_path: Path) -> None:
    from tests.support.foreign_trees import NEURON

    cache = tmp_path / f"neuronxcc-{VERSION}"
    register(cache, neuron={**NEURON, "neuronxcc_version": "2.20.0.0+00000000"})

    assert "2.20.0.0" in read_registry(tmp_path).left_out[0][1]


def test_json_that_means_two_things_is_left_out(tmp_path: Path) -> None:
    import hashlib

    cache = tmp_path / f"neuronxcc-{VERSION}"
    path = register(cache)
    text = path.read_text().replace("{", '{"hidden_size": 1,', 1)
    path.unlink()
    path.with_name(f"{hashlib.sha512(text.encode()).hexdigest()[:20]}.json").write_text(text)

    registry = read_registry(tmp_path)

    assert registry.entries == ()
    assert "stands twice" in registry.left_out[0][1]


def test_what_neo_left_is_found_below_a_directory(tmp_path: Path) -> None:
    neo_tree(tmp_path / "job/output")

    [output] = find_neo_outputs(tmp_path)

    assert output.properties["option.n_positions"] == "1024"
    assert output.config is not None
    assert json.loads(output.config.read_text())["model_type"] == "llama"
    assert len(output.caches[0].modules) == 1


def test_a_directory_without_graphs_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        find_neo_outputs(tmp_path)


def test_a_log_names_graphs() -> None:
    log = "Using a cached neff at /c/MODULE_fefbaedf6fbc82fc61a8+ede6753c/model.neff. Exiting"

    assert modules_named([log]) == {"MODULE_fefbaedf6fbc82fc61a8+ede6753c"}
