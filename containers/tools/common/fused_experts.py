"""Matrices that one tensor of fused experts holds, in the words of transformers 5."""

from __future__ import annotations

PARTS = {
    "gate_up_proj": ("gate_proj", "up_proj"),
    "up_proj": ("up_proj",),
    "down_proj": ("down_proj",),
}
