"""A lineage for people: text, drawing and page, whatever strangers wrote."""

from __future__ import annotations

from xml.etree import ElementTree

from packager.core.reports.page import report_html
from packager.images.lineage.drawing import lineage_svg
from packager.images.lineage.graph import Fragment, LineageGraph
from packager.images.lineage.index import LineageIndex
from packager.images.lineage.page import lineage_page
from packager.images.lineage.records import record_fragment
from packager.images.lineage.report import lineage_document, lineage_lines
from tests.support.known import known
from tests.support.lineage_records import IMAGE, KEY, record

SVG = "{http://www.w3.org/2000/svg}"


def graph_of(*fragments: Fragment, subject: str = f"image:{IMAGE}") -> LineageGraph:
    return LineageIndex(None).graph([subject], fragments)


def test_the_text_is_two_trees() -> None:
    assert lineage_lines(graph_of(record_fragment(record()))) == [
        "image      tiny for ml.g5.xlarge",
        f"  digest {IMAGE}",
        "  engine vllm 0.32.0",
        "  names tiny:1",
        "made from",
        "└─ artifact   tiny, after quantize",
        f"      key {KEY}",
        "   └─ step       quantize by llmcompressor",
        "         took 12.5 s",
        "      └─ data       chats.jsonl",
        "went into: nothing that is recorded",
    ]


def test_a_claim_is_said_to_be_one() -> None:
    lines = lineage_lines(graph_of(record_fragment(record(), claimed=True)))

    assert lines[0] == "image      tiny for ml.g5.xlarge (claimed)"
    assert lines[-1] == "(claimed): by a record attached to the image; nothing here proves it"


def test_what_went_in_twice_is_spelt_out_once() -> None:
    steps = [
        {"name": "quantize", "tool": "t", "key": KEY},
        {"name": "compile", "tool": "t", "key": KEY},
    ]

    text = "\n".join(lineage_lines(graph_of(record_fragment(record(steps=steps)))))

    assert text.count("(above)") <= 1
    assert text.count(f"key {KEY}") == 1


def test_text_of_strangers_starts_no_line_and_moves_no_cursor() -> None:
    hostile = record(served_name="a\nmade from\x1b[2J\u202e", request={"instance": "i\r"})

    lines = lineage_lines(graph_of(record_fragment(hostile, claimed=True)))

    assert all(line.isprintable() for line in lines)
    assert sum(line == "made from" for line in lines) == 1


def test_the_drawing_is_xml_that_holds_no_markup_of_strangers() -> None:
    hostile = record(served_name='</text><script>alert(1)</script>"&\x00\ud800'[:-1])

    drawing = ElementTree.fromstring(lineage_svg(graph_of(record_fragment(hostile))))

    assert {one.tag.removeprefix(SVG) for one in drawing.iter()} <= {
        *("svg", "title", "desc", "defs", "marker", "path", "rect", "g", "text")
    }


def test_the_drawing_has_a_title_and_its_relations_as_text() -> None:
    drawing = ElementTree.fromstring(lineage_svg(graph_of(record_fragment(record()))))

    assert drawing.get("role") == "img"
    assert drawing.findtext(f"{SVG}title") == "Lineage of image tiny for ml.g5.xlarge"
    told = drawing.findtext(f"{SVG}desc") or ""
    assert "data chats.jsonl went into step quantize by llmcompressor." in told


def test_claimed_and_unknown_are_told_apart_without_colour() -> None:
    steps = [{"name": "quantize", "tool": "t", "key": ""}]
    text = lineage_svg(graph_of(record_fragment(record(steps=steps), claimed=True)))

    assert 'stroke-dasharray="6 3"' in text
    assert 'stroke-dasharray="2 2"' in text
    assert ">model (unknown)</text>" in text
    assert ">image (claimed)</text>" in text


def test_columns_go_from_what_went_in_to_what_came_out() -> None:
    drawing = ElementTree.fromstring(lineage_svg(graph_of(record_fragment(record()))))

    at = {}
    for group in drawing.iter(f"{SVG}g"):
        kind, _ = (one.text for one in group.iter(f"{SVG}text"))
        box = known(group.find(f"{SVG}rect"))
        at[kind] = int(box.get("x") or 0)

    assert at["data"] < at["step"] < at["artifact"] < at["image"]


def test_a_large_graph_is_drawn_in_part_and_says_so() -> None:
    many = [record_fragment(record(digest=f"sha256:{at:064x}")) for at in range(400)]

    text = lineage_svg(graph_of(*many, subject=f"artifact:{KEY}"))

    assert text.count("<g>") == 300
    assert "103 more are not drawn" in text


def test_the_page_escapes_what_strangers_wrote() -> None:
    page = report_html(
        lineage_page(graph_of(record_fragment(record(served_name="<script>alert(1)</script>"))))
    )

    assert "<script>alert" not in page
    assert '<th scope="row">&lt;script&gt;alert(1)&lt;/script&gt; for ml.g5.xlarge</th>' in page


def test_the_document_has_what_the_text_has() -> None:
    found = lineage_document(graph_of(record_fragment(record())))

    assert (found["schema"], found["subjects"]) == (1, [f"image:{IMAGE}"])
    assert {"from": f"artifact:{KEY}", "to": f"image:{IMAGE}"} in found["edges"]
    assert {node["kind"] for node in found["nodes"]} == {"artifact", "data", "image", "step"}
