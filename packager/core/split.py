"""How a model is spread over devices: tensor, pipeline, data and expert parallelism."""

from __future__ import annotations

from dataclasses import dataclass

from packager.core.stopping import Stopping


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The layout of a model over all devices that serve it.

    `tp_degree * pp_degree * dp_degree` devices make one server; `workers` servers run side
    by side in one container.  A server may span `nodes` machines.
    """

    tp_degree: int = 1  # devices that share each copy of attention
    pp_degree: int = 1  # stages, one after the other
    dp_degree: int = 1  # copies of attention and of the cache inside one server
    workers: int = 1  # servers that the container starts, each with its own weights
    nodes: int = 1  # machines that one server spans
    expert_parallel: bool = False  # experts are kept whole and given out, not cut
    dp_attention: bool = False  # the copies of one server hold one set of experts together

    @property
    def devices(self) -> int:
        """Count the devices in use, of all machines."""
        return self.tp_degree * self.pp_degree * self.dp_degree * self.workers

    @property
    def server_devices(self) -> int:
        """Count the devices of one server."""
        return self.devices // self.workers

    @property
    def devices_per_node(self) -> int:
        """Count the devices in use of one machine."""
        return self.devices // self.nodes

    @property
    def copies(self) -> int:
        """Count what batches requests by itself: ranks of data parallelism, on all servers."""
        return self.dp_degree * self.workers

    @property
    def expert_degree(self) -> int:
        """Count the devices over which one set of experts is spread, of one stage."""
        return self.tp_degree * (self.dp_degree if self.dp_attention else 1)

    @property
    def words(self) -> str:
        """Describe the layout in one line: `TP 2 x 4 copies (data parallel)`."""
        parts = [f"TP {self.tp_degree}"]
        if self.pp_degree > 1:
            parts.append(f"PP {self.pp_degree}")
        text = " ".join(parts)
        if self.copies > 1:
            text += f" x {self.copies} copies ({', '.join(self._kinds())})"
        if self.expert_parallel:
            text += f", experts over {self.expert_degree} devices"
        return text + (f", {self.nodes} nodes" if self.nodes > 1 else "")

    def _kinds(self) -> list[str]:
        kinds = []
        if self.workers > 1:
            kinds.append(f"{self.workers} workers")
        if self.dp_degree > 1:
            kinds.append("data parallel attention" if self.dp_attention else "data parallel")
        return kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedDtypes:
    """The element type that an engine computes quantized weights with, where it decides that."""

    half: frozenset[str]  # formats computed in float16, whatever the model is
    asked: frozenset[str]  # formats beside which it computes in the type that it is given
    wide: frozenset[str]  # models, by type, computed in bfloat16 in every other format

    def of(self, weight_format: str, model_type: str) -> str:
        """Return `fp16` or `bf16`; "" where the type that is asked for is taken."""
        if not weight_format or weight_format in self.asked:
            return ""
        is_wide = model_type in self.wide and weight_format not in self.half
        return "bf16" if is_wide else "fp16"


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What one version of a serving container can start: layouts, and parsers of answers."""

    who: str  # `vLLM 0.27.1`, as messages name it
    pipeline: bool = False
    data_parallel: bool = False  # several copies in one server
    own_experts: bool = False  # such copies of a mixture may each keep all experts
    dp_attention: bool = False  # such copies of a mixture may share one set of experts
    dp_attention_drafts: frozenset[str] | None = None  # that work with it; None: all
    expert_parallel: bool = False
    workers: bool = False  # starts a server on each group of devices, asked or not
    copies_kv_heads: bool = True  # more devices than key-value heads are possible
    most_nodes: int = 1
    node_options: str = ""  # that every one of several machines is started with
    # Names that this version has; () where it takes none, None where its list is not known.
    tool_parsers: tuple[str, ...] | None = ()
    reasoning_parsers: tuple[str, ...] | None = ()
    stopping: Stopping | None = None  # None where nobody looked
    quantized_dtypes: QuantizedDtypes | None = None  # None: it computes in the type that is asked

    def may_draft(self, split: Split, draft: str) -> bool:
        """Check whether a draft of this kind works in a layout."""
        known = self.dp_attention_drafts
        return not split.dp_attention or known is None or draft in known
