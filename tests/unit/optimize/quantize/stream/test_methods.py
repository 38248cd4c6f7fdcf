"""Which methods stream, wherever that is said."""

from __future__ import annotations

from packager.catalog.techniques import techniques
from packager.estimate.sizing.quantizable import read_table
from packager.optimize.quantize.llmcompressor import LlmCompressorQuantizer
from packager.optimize.quantize.stream.quantizer import COSTS_NS, StreamQuantizer


def test_the_list_of_techniques_says_which_methods_stream() -> None:
    told = {one.name for one in techniques() if one.streams}

    assert told == set(StreamQuantizer().methods)
    assert told == {name for name, kind in read_table().methods.items() if kind == "rounded"}


def test_schemes_are_the_tools_own() -> None:
    own, tools = StreamQuantizer().methods, LlmCompressorQuantizer.methods

    assert all(own[name] == tools[name] for name in own)
    assert set(COSTS_NS) == {"fp8", "int8", "int4", "nvfp4", "mxfp4", "mxfp8"}
