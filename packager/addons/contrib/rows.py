"""Rows of what stands here, by the entry points of the distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packager.cli.plugins.rows import Row

if TYPE_CHECKING:
    from packager.cli.plugins.tables import CompilerRow, TreeRow
    from packager.core.ports import Compiler, TreeReader


def _tensorrt_llm() -> Compiler:
    from packager.addons.contrib.tensorrt_llm.compiler import TensorRtLlmCompiler

    return TensorRtLlmCompiler()


def _optimum_neuron_trees() -> TreeReader:
    from packager.addons.contrib.foreign_caches.readers import OptimumNeuronReader

    return OptimumNeuronReader()


def _neo_trees() -> TreeReader:
    from packager.addons.contrib.foreign_caches.readers import NeoReader

    return NeoReader()


TENSORRT_LLM: CompilerRow = Row(
    "a TensorRT-LLM engine for one GPU model, up to TensorRT-LLM 1.2", _tensorrt_llm
)
OPTIMUM_NEURON: TreeRow = Row("optimum-neuron's cache of compiled graphs", _optimum_neuron_trees)
NEO: TreeRow = Row("SageMaker Neo's output of a compilation for Neuron", _neo_trees)
