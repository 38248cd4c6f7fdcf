"""Split of a model over devices: tensor, pipeline, data and expert parallelism."""

from __future__ import annotations

from dataclasses import dataclass


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
    expert_parallel: bool = False  # whole experts are distributed, not cut
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
