"""The index over documents: what is asked of it, and what becomes of damaged files."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from packager.core.documents import NotStrict
from packager.core.errors import OutputFailed
from packager.images.lineage.entries import weights_identity
from packager.images.lineage.graph import Edge, Fragment, LineageNode, layers_of
from packager.images.lineage.index import LineageDocument, LineageIndex
from packager.images.lineage.records import record_fragment
from packager.images.lineage.services import endpoint_fragment, job_fragment
from tests.support.cases import cases
from tests.support.lineage_records import IMAGE, KEY, record


def document(place: str, read: Callable[[], Fragment], stamp: str = "1") -> LineageDocument:
    return LineageDocument(place=place, stamp=stamp, read=read)


def of(**changes: object) -> Callable[[], Fragment]:
    return lambda: record_fragment(record(**changes))


def take(index: LineageIndex, **reads: Callable[[], Fragment]) -> tuple[str, ...]:
    """Bring an index up to date with documents at these places."""
    return index.update([document(place, read) for place, read in reads.items()])


def endpoint() -> Fragment:
    served = {"active": {"variants": [{"server": {"image": "tiny:1"}}]}}
    return endpoint_fragment("endpoint", "live", "InService", served)


OTHER = "sha256:" + "99" * 32


@pytest.fixture(params=[True, False], ids=["on the disk", "in memory"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> LineageIndex:
    return LineageIndex(tmp_path / "lineage.sqlite" if request.param else None)


def test_an_artifact_shows_all_images_that_it_went_into(index: LineageIndex) -> None:
    take(index, a=of(), b=of(digest=OTHER))

    graph = index.graph([f"artifact:{KEY}"])

    images = {node.id for node in graph.after(f"artifact:{KEY}")}
    assert images == {f"image:{IMAGE}", f"image:{OTHER}"}


def test_what_came_of_the_same_data_elsewhere_is_no_part_of_it(index: LineageIndex) -> None:
    take(index, a=of(), b=of(digest=OTHER))

    graph = index.graph([f"image:{IMAGE}"])

    assert f"image:{OTHER}" not in graph.nodes


@cases("names", found=True)
def test_an_image_is_found_by(index: LineageIndex, name: str, found: bool) -> None:
    take(index, a=of())

    assert index.find(name) == ((f"image:{IMAGE}",) if found else ())


def test_a_document_that_changes_or_goes_is_taken_in_anew(index: LineageIndex) -> None:
    index.update([document("a", of()), document("kept:b", of(digest=OTHER))])
    index.update([document("a", of(served_name="renamed"), stamp="2")])

    assert index.find("renamed") == (f"image:{IMAGE}",)
    assert index.find("999999") == (f"image:{OTHER}",)
    index.update([])
    assert index.find(IMAGE) == ()


def test_an_unchanged_document_is_not_read_again(index: LineageIndex) -> None:
    take(index, a=of())

    def refuse() -> Fragment:
        raise AssertionError

    assert index.update([document("a", refuse)]) == ()


def test_what_cannot_be_read_is_told_each_time(index: LineageIndex) -> None:
    def broken() -> Fragment:
        raise NotStrict("it is not JSON")

    assert take(index, a=broken) == take(index, a=broken) == ("a: it is not JSON",)


@pytest.mark.parametrize("data", [b"", b"no database", b"SQLite format 3\x00" + b"\xff" * 4096])
def test_a_damaged_index_is_made_again(tmp_path: Path, data: bytes) -> None:
    place = tmp_path / "lineage.sqlite"
    place.write_bytes(data)

    index = LineageIndex(place)
    take(index, a=of())

    assert index.find(IMAGE) == (f"image:{IMAGE}",)


def test_an_index_that_breaks_later_is_explained(tmp_path: Path) -> None:
    place = tmp_path / "lineage.sqlite"
    index = LineageIndex(place)
    index.update([document(str(at), of(digest=f"sha256:{at:064x}")) for at in range(200)])
    data = bytearray(place.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    place.write_bytes(data)

    with pytest.raises(OutputFailed, match="cannot be used") as refused:
        index.find(IMAGE)

    assert "remove the file" in refused.value.hint


def test_several_processes_may_bring_it_up_to_date_at_once(tmp_path: Path) -> None:
    place = tmp_path / "lineage.sqlite"
    documents = [document(str(at), of(digest=f"sha256:{at:064x}")) for at in range(100)]

    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(lambda _: LineageIndex(place).update(documents), range(24)))

    assert told == [()] * 24
    assert len(LineageIndex(place).find("tiny")) == 100


def test_a_job_an_image_an_endpoint_and_its_benchmark_are_one_line(index: LineageIndex) -> None:
    target = {"BenchmarkTarget": {"Endpoint": {"Identifier": "arn:aws:x:endpoint/live"}}}
    job = job_fragment("optimization", "opt", "completed", {}, [f"image:{IMAGE}"])
    measured = job_fragment("benchmark", "load", "completed", target, [])
    take(index, a=of(), j=lambda: job, e=endpoint, m=lambda: measured)

    graph = index.graph(index.find("load"))

    assert {"job:optimization/opt", f"image:{IMAGE}", "endpoint:live", f"artifact:{KEY}"} <= set(
        graph.nodes
    )


def test_a_head_that_a_job_trained_is_the_artifact_of_its_training(index: LineageIndex) -> None:
    head = {"model.safetensors": "11" * 32}
    made = Fragment(
        nodes=(LineageNode(id="artifact:t", kind="artifact", label="draft-head"),),
        edges=(Edge("step:t", "artifact:t"), Edge("data:chats", "step:t")),
        aliases=((f"model:{weights_identity(head)}", "artifact:t"),),
    )
    job = job_fragment("optimization", "opt", "completed", {}, [f"image:{IMAGE}"], head)
    take(index, t=lambda: made, a=of(), j=lambda: job)

    graph = index.graph([f"image:{IMAGE}"])

    assert {"data:chats", "step:t", "artifact:t", "job:optimization/opt"} <= set(graph.nodes)


def test_a_name_of_several_images_stands_for_none_of_them(index: LineageIndex) -> None:
    take(index, a=of(), b=of(digest=OTHER), e=endpoint)

    (image,) = index.graph(["endpoint:live"]).before("endpoint:live")

    assert (image.id, image.known) == ("image:name:tiny:1", False)


def test_a_record_of_ours_wins_over_a_claim(index: LineageIndex) -> None:
    take(index, a=of())
    claim = record_fragment(record(served_name="better"), claimed=True)

    node = index.graph([f"image:{IMAGE}"], [claim]).nodes[f"image:{IMAGE}"]

    assert (node.label, node.claimed) == ("tiny for ml.g5.xlarge", False)


def test_things_that_came_from_each_other_end_the_search(index: LineageIndex) -> None:
    nodes = tuple(LineageNode(id=f"model:{one}", kind="model", label=one) for one in "abc")
    edges = tuple(Edge(f"model:{one}", f"model:{other}") for one, other in ("ab", "bc", "ca"))
    ring = Fragment(nodes=nodes, edges=edges)

    graph = index.graph(["model:a"], [ring])

    assert set(graph.nodes) == {"model:a", "model:b", "model:c"}
    assert sorted(one for column in layers_of(graph) for one in column) == sorted(graph.nodes)


def test_a_graph_ends_where_it_is_too_large(index: LineageIndex) -> None:
    many = [document(str(at), of(digest=f"sha256:{at:064x}")) for at in range(50)]
    index.update(many)

    graph = index.graph([f"artifact:{KEY}"], most=10)

    assert len(graph.after(f"artifact:{KEY}")) == 9
    assert graph.left_out == 41


def test_ten_thousand_records_are_asked_in_a_moment(tmp_path: Path) -> None:
    def one(at: int) -> Callable[[], Fragment]:
        steps = [{"name": "quantize", "tool": "t", "key": f"{at // 20:064x}"}]
        return of(digest=f"sha256:{at:064x}", steps=steps, served_name=f"m{at}", images=[])

    documents = [document(str(at), one(at)) for at in range(10_000)]
    index = LineageIndex(tmp_path / "lineage.sqlite")
    index.update(documents)

    started = time.process_time()
    index.update(documents)
    graph = index.graph(index.find("m7777"))
    spent = time.process_time() - started

    assert f"image:sha256:{7777:064x}" in graph.nodes
    assert spent < 1.5
