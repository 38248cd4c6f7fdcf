"""What other tools compiled becomes entries with keys, or is refused with the reason."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from artifact_cache.stores.archive import Imported
from packager.addons.contrib.foreign_caches.neff import read_neff_header
from packager.addons.contrib.foreign_caches.readers import NeoReader, OptimumNeuronReader
from packager.core.errors import PackagerError, UsageError
from packager.core.trees import Stated
from packager.optimize.cache.errors import CacheRefused
from packager.optimize.cache.operations import CachePlace
from packager.optimize.cache.trees import import_tree
from packager.optimize.keys.documents import parse_document
from tests.support.cache_opening import open_local
from tests.support.cases import as_type, cases, read_tables
from tests.support.foreign_trees import (
    CONFIG,
    NEURON,
    VERSION,
    add_module,
    neo_tree,
    optimum_tree,
    register,
)

NOTHING = Stated()
NEO_REST = read_tables(__file__)["reset_for_neo"]


@pytest.fixture
def place(tmp_path: Path) -> CachePlace:
    root = tmp_path / "cache/artifacts"
    return CachePlace(root, open_local(root))


Done = tuple[Imported, tuple[str, ...]]


def read(tree: Path, place: CachePlace, stated: Stated = NOTHING) -> Done:
    return import_tree(OptimumNeuronReader(), tree, place, stated)


def only(done: Done) -> dict[str, Any]:
    [entry] = done[0].published
    return dict(entry.keydoc)


def test_a_registered_model_becomes_an_entry_that_its_key_document_finds(
    tmp_path: Path, place: CachePlace
) -> None:
    cache = optimum_tree(tmp_path / "tree")

    document = only(read(tmp_path / "tree", place))

    assert document["shape"]["max_batch"] == 4
    assert document["shape"]["context_batch"] == 1  # continuous batching prefills one by one
    assert document["parallelism"]["tp"] == 2
    assert (document["target"]["arch"], document["target"]["logical_core_size"]) == ("trn1", 1)
    assert document["precision"]["dtype"] == "bf16"
    assert {one["name"]: one["version"] for one in document["toolchain"]["packages"]} == {
        "neuronx-cc": VERSION,
        "optimum-neuron": "0.4.5",
    }
    into = tmp_path / "into"
    assert place.cache.get_or_build(parse_document(document), lambda _: pytest.fail(), into).hit
    for path in cache.glob("MODULE_*/*"):
        assert (into / path.relative_to(tmp_path / "tree")).read_bytes() == path.read_bytes()


def test_fine_tunes_share_their_graphs(tmp_path: Path, place: CachePlace) -> None:
    """The model's name, tokens and revision are no input; the tree is left as it was."""
    optimum_tree(tmp_path / "one")
    other = tmp_path / f"other/neuronxcc-{VERSION}"
    add_module(other, 1)
    register(
        other,
        model="acme/tuned",
        config={**CONFIG, "use_cache": True},
        neuron={**NEURON, "checkpoint_id": "acme/tuned", "checkpoint_revision": "1" * 40},
    )

    first = only(read(tmp_path / "one", place))
    second = read(tmp_path / "other", place)

    assert second[0].published == ()
    assert second[0].known[0].keydoc == first


@cases("whatever_the_registry_says_is_in_the_key")
def test_whatever_the_registry_says_is_in_the_key(
    tmp_path: Path, place: CachePlace, changed: dict[str, Any], pointer: str
) -> None:
    from artifact_cache.explain import differences

    optimum_tree(tmp_path / "one")
    other = tmp_path / f"other/neuronxcc-{VERSION}"
    add_module(other, 1)
    register(other, neuron={**NEURON, **changed})

    first = only(read(tmp_path / "one", place))
    second = only(read(tmp_path / "other", place))

    assert pointer in {one.pointer for one in differences(first, second)}


def test_a_tree_of_two_models_is_refused_until_their_graphs_are_named(
    tmp_path: Path, place: CachePlace
) -> None:
    cache = optimum_tree(tmp_path / "tree")
    register(cache, model="acme/other", neuron={**NEURON, "batch_size": 8})
    log = tmp_path / "compile.log"
    name = next(cache.glob("MODULE_*1+*")).name
    log.write_text(f"Using a cached neff at /x/{name}/model.neff")

    with pytest.raises(UsageError, match="which of its 2 graphs are its"):
        read(tmp_path / "tree", place)
    done = import_tree(
        OptimumNeuronReader(), tmp_path / "tree", place, Stated(model="acme/tiny", logs=(log,))
    )

    assert {one.path.split("/")[1] for one in done[0].published[0].outputs} == {name}


def test_all_graphs_may_be_given_to_every_model(tmp_path: Path, place: CachePlace) -> None:
    cache = optimum_tree(tmp_path / "tree")
    register(cache, model="acme/other", neuron={**NEURON, "batch_size": 8})

    done = read(tmp_path / "tree", place, Stated(all_modules=True))

    assert len(done[0].published) == 2
    assert {len(one.outputs) for one in done[0].published} == {8}


def test_what_neither_flags_nor_files_say_must_be_stated(tmp_path: Path, place: CachePlace) -> None:
    cache = tmp_path / f"tree/neuronxcc-{VERSION}"
    add_module(cache, 1, flags=None, cores=0)
    register(cache)

    with pytest.raises(UsageError, match=r"does not say .*logical_core_size") as refused:
        read(tmp_path / "tree", place)
    stated = as_type(read_tables(__file__)["stated"], Stated)
    document = only(read(tmp_path / "tree", place, stated))

    assert "--logical-core-size N" in refused.value.hint
    assert document["target"]["logical_core_size"] == 1
    assert not list((place.root / "ac").glob("*/*/*"))[1:]


def test_nobody_may_say_otherwise_than_the_tree(tmp_path: Path, place: CachePlace) -> None:
    optimum_tree(tmp_path / "tree")
    for stated, words in (
        (Stated(instance="ml.trn2.48xlarge"), "/target/arch"),
        (Stated(logical_core_size=2), "/target/logical_core_size"),
        (Stated(stated=("/parallelism/tp=4",)), "/parallelism/tp"),
        (Stated(stated=("/shape/no_such=4",)), "no /shape/no_such"),
    ):
        with pytest.raises(UsageError, match=words):
            read(tmp_path / "tree", place, stated)


def test_graphs_can_be_imported_for_the_key_document_of_a_build(
    tmp_path: Path, place: CachePlace
) -> None:
    optimum_tree(tmp_path / "tree")
    wanted = only(read(tmp_path / "tree", place))
    wanted["toolchain"] = {**wanted["toolchain"], "worker": "c" * 64}
    wanted["invocation"] = {**wanted["invocation"], "env": {"NEURON_CC_FLAGS": "-O2"}}
    file = tmp_path / "wanted.json"
    file.write_text(json.dumps(wanted))

    only(read(tmp_path / "tree", place, Stated(document=file)))

    assert place.cache.find(parse_document(wanted)) is not None
    wanted["shape"] = {**wanted["shape"], "max_batch": 1}
    file.write_text(json.dumps(wanted))
    with pytest.raises(UsageError, match="/shape/max_batch is 4 in the tree"):
        read(tmp_path / "tree", place, Stated(document=file))


def test_weights_inside_graphs_and_remote_code_are_refused(
    tmp_path: Path, place: CachePlace
) -> None:
    for name, changes in (
        ("inlined", {"neuron": {**NEURON, "inline_weights_to_neff": True}}),
        ("code", {"config": {**CONFIG, "auto_map": {"AutoModel": "modeling.Model"}}}),
        ("quantized", {"config": {**CONFIG, "quantization_config": {"bits": 4}}}),
    ):
        cache = tmp_path / name / f"neuronxcc-{VERSION}"
        add_module(cache, 1)
        register(cache, **changes)  # type: ignore[arg-type]
        with pytest.raises(CacheRefused):
            read(tmp_path / name, place)
    assert place.listed() == ()


def test_what_neo_compiled_is_read_with_its_properties(tmp_path: Path, place: CachePlace) -> None:
    neo_tree(tmp_path / "output")

    with pytest.raises(UsageError, match="does not say /shape/max_input_tokens"):
        import_tree(NeoReader(), tmp_path / "output", place, Stated())
    document = only(import_tree(NeoReader(), tmp_path / "output", place, Stated(stated=NEO_REST)))

    assert document["parallelism"]["tp"] == 2
    assert document["shape"]["max_total_tokens"] == 1024
    assert (document["shape"]["token_batch"], document["shape"]["context_batch"]) == (4, 1)
    assert document["precision"]["dtype"] == "fp16"
    assert "/opt/ml" not in json.dumps(document)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_whatever_is_changed_in_a_tree_nothing_wrong_is_kept(
    tmp_path: Path, place: CachePlace, data: st.DataObject
) -> None:
    """Graphs that are kept are those of the sound tree, under the sound tree's key."""
    tree = tmp_path / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    optimum_tree(tree)
    sound = {path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    files = sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    path = data.draw(st.sampled_from(files))
    header = bytearray(path.read_bytes())
    how = data.draw(st.sampled_from(("flip", "cut", "remove", "replace")))
    if how == "flip" and header:
        # What the header does not say cannot be told from form alone: see `neff`.
        at = data.draw(st.integers(0, min(len(header), 40) - 1))
        header[at] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(bytes(header))
    elif how == "cut":
        path.write_bytes(bytes(header[: len(header) // 2]))
    elif how == "replace":
        path.write_bytes(data.draw(st.binary(max_size=64)))
    else:
        path.unlink()
    kept = {one.key for one in place.listed()}

    with contextlib.suppress(PackagerError):
        read(tree, place)

    for one in {one.key for one in place.listed()} - kept:
        outputs = place.show(place.find(one)).entry.outputs
        digests = {hashlib.sha256(content).hexdigest() for content in sound}
        assert {
            output.sha256
            for output in outputs
            if not output.path.endswith((".pb", ".done", ".neff"))
        } <= digests
        for output in outputs:
            if output.path.endswith(".neff"):
                read_neff_header(place.store.blob_path(output.sha256))
