"""Tokens of a picture in a prompt, by the arithmetic of the model's own processor.

A processor scales a picture, cuts it into tiles or leaves it whole, and writes a placeholder for
each feature that the encoder makes of it.  What is counted is what it puts into the prompt.

Each family was compared with transformers 5.17.0 (models/*/processing_*.py and
image_processing_*.py) for 200 sizes: tests/live/test_pictures.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeGuard

Size = tuple[int, int]  # width and height in pixels

MOST = 1 << 20  # of a number in a file, which is untrusted: beyond it, it is none
MOST_TILES = 256
MOST_PIXELS = 1 << 40
LARGEST_SIDE = 4096  # that Idefics 3 scales to at most


@dataclass(frozen=True)
class Processor:
    """The settings of a model's processor, each looked for where files of several years have it."""

    config: Mapping[str, Any]  # of the model
    settings: Mapping[str, Any]  # preprocessor_config.json, and processor_config.json over it

    def number(self, name: str, default: int) -> int:
        """Return a whole number of the settings; the default where there is none."""
        return _positive(self.settings.get(name), default)

    def text(self, name: str, default: str) -> str:
        """Return a text of the settings, else of the model's configuration."""
        found = self.settings.get(name, self.config.get(name))
        return found if isinstance(found, str) else default

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a truth value of the settings."""
        found = self.settings.get(name)
        return found if isinstance(found, bool) else default

    def side(self, name: str, key: str, default: int) -> int:
        """Return an edge of a size, which is a number or an object of edges."""
        found = self.settings.get(name)
        if isinstance(found, Mapping):
            found = found.get(key) or found.get("shortest_edge") or found.get("height")
        return _positive(found, default)

    @cached_property
    def vision(self) -> Mapping[str, Any]:
        """The configuration of the encoder."""
        found = self.config.get("vision_config")
        return found if isinstance(found, Mapping) else {}

    def vision_number(self, name: str, default: int) -> int:
        """Return a whole number of the encoder's configuration: of two sides, the first."""
        found = self.vision.get(name, default)
        if isinstance(found, (list, tuple)):
            found = found[0] if found else default
        return _positive(found, default)


def _positive(found: object, default: int, most: int = MOST) -> int:
    return found if type(found) is int and 0 < found <= most else default


Count = Callable[[Processor, Size], int]


def picture_tokens(
    config: Mapping[str, Any], settings: Mapping[str, Any], size: Size
) -> int | None:
    """Return how many tokens a picture takes in the prompt; None where that is not known."""
    count = COUNTS.get(str(config.get("model_type", "")))
    if count is None or min(size) < 1:
        return None
    return count(Processor(config, settings), size) or None


def _qwen(processor: Processor, size: Size) -> int:
    """Scale to whole cells within limits of pixels; one token a cell of merged patches."""
    width, height = size
    patch = processor.number("patch_size", processor.vision_number("patch_size", 14))
    merge = processor.number("merge_size", processor.vision_number("spatial_merge_size", 2))
    cell = patch * merge
    least, most = _pixels(processor)
    columns, rows = round(width / cell), round(height / cell)
    if rows * columns * cell * cell > most:
        scale = math.sqrt(width * height / most)
        columns = max(1, math.floor(width / scale / cell))
        rows = max(1, math.floor(height / scale / cell))
    elif rows * columns * cell * cell < least:
        scale = math.sqrt(least / (width * height))
        columns, rows = math.ceil(width * scale / cell), math.ceil(height * scale / cell)
    return rows * columns


def _pixels(processor: Processor) -> tuple[int, int]:
    """Return the fewest and the most pixels of a scaled picture."""
    found = processor.settings.get("size")
    edges = found if isinstance(found, Mapping) else {}
    usual_least = _positive(edges.get("shortest_edge"), 56 * 56, MOST_PIXELS)
    usual_most = _positive(edges.get("longest_edge"), 28 * 28 * 1280, MOST_PIXELS)
    settings = processor.settings
    least = _positive(settings.get("min_pixels"), usual_least, MOST_PIXELS)
    return least, _positive(settings.get("max_pixels"), usual_most, MOST_PIXELS)


def _grid_of_crop(processor: Processor) -> int:
    """Count the patches of a picture that is scaled to the encoder's own size."""
    crop = "crop_size" if "crop_size" in processor.settings else "size"
    side = processor.side(crop, "height", processor.vision_number("image_size", 336))
    patch = processor.number("patch_size", processor.vision_number("patch_size", 14))
    return (side // patch) ** 2


def _without_class(processor: Processor, tokens: int) -> int:
    """Leave the class token out where the model selects features so."""
    more = processor.number("num_additional_image_tokens", 1)
    is_default = processor.text("vision_feature_select_strategy", "default") == "default"
    return tokens + more - (1 if is_default else 0)


def _llava(processor: Processor, size: Size) -> int:  # noqa: ARG001
    return _without_class(processor, _grid_of_crop(processor))


def _llava_next(processor: Processor, size: Size) -> int:
    """Count the features of tiles without padding, a line break a row, and those of the whole."""
    width, height = size
    side = processor.side("size", "shortest_edge", processor.vision_number("image_size", 336))
    patch = processor.number("patch_size", processor.vision_number("patch_size", 14))
    cells = side // patch
    best_height, best_width = _best_canvas(size, _pinpoints(processor))
    rows, columns = cells * (best_height // side), cells * (best_width // side)
    if not rows * columns:
        return 0
    if width / height > columns / rows:
        kept = int(round(height * (columns / width), 7))
        rows -= (rows - kept) // 2 * 2
    else:
        kept = int(round(width * (rows / height), 7))
        columns -= (columns - kept) // 2 * 2
    return _without_class(processor, rows * columns + rows + cells * cells)


def _pinpoints(processor: Processor) -> list[Size]:
    """Return the canvases, each height and width, that a picture may be scaled to."""
    found = processor.settings.get("image_grid_pinpoints") or processor.config.get(
        "image_grid_pinpoints"
    )
    usual = [(336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008)]
    pairs = [tuple(one) for one in found] if _are_pairs(found) else usual
    return [(height, width) for height, width in pairs]


def _are_pairs(found: object) -> TypeGuard[Sequence[Sequence[int]]]:
    return isinstance(found, (list, tuple)) and all(
        isinstance(one, (list, tuple)) and len(one) == 2 and all(_positive(each, 0) for each in one)
        for one in found[:MOST_TILES]
    )


def _best_canvas(size: Size, canvases: Iterable[Size]) -> Size:
    """Return the canvas that keeps most of the picture's pixels, then wastes fewest."""
    width, height = size

    def worth(canvas: Size) -> tuple[int, int]:
        scale = min(canvas[1] / width, canvas[0] / height)
        kept = min(int(width * scale) * int(height * scale), width * height)
        return kept, kept - canvas[0] * canvas[1]

    return max(canvases, key=worth)


def _internvl(processor: Processor, size: Size) -> int:
    """Count tiles of one size, a thumbnail beside several, and the two tokens around them."""
    each = processor.number("image_seq_length", _merged_tokens(processor))
    crops = processor.flag("crop_to_patches", default=True)
    most = min(processor.number("max_patches", 12), MOST_TILES)
    side = processor.side("size", "height", processor.vision_number("image_size", 448))
    tiles = 1
    if crops and most > 1:
        columns, rows = _best_grid(size, side, processor.number("min_patches", 1), most)
        tiles += columns * rows if columns * rows > 1 else 0
    return 2 + each * tiles


def _merged_tokens(processor: Processor) -> int:
    """Return the tokens of a tile: its patches, four of which become one."""
    return _positive(processor.config.get("image_seq_length"), 256)


def _best_grid(size: Size, side: int, least: int, most: int) -> Size:
    """Return the columns and rows of tiles whose ratio is nearest to the picture's.

    Of equal ratios more tiles win, while the picture covers more than half of them.
    """
    width, height = size
    grids = sorted(
        (
            (columns, rows)
            for columns in range(1, most + 1)
            for rows in range(1, most + 1)
            if least <= columns * rows <= most
        ),
        key=lambda grid: grid[0] * grid[1],
    )
    best, nearest = (1, 1), math.inf
    for columns, rows in grids:
        difference = abs(width / height - columns / rows)
        covers = width * height > 0.5 * side * side * columns * rows
        if difference < nearest or (difference == nearest and covers):
            best, nearest = (columns, rows), difference
    return best


def _fixed(default: int) -> Count:
    """Count the same for every picture: the encoder sees it at one size."""

    def count(processor: Processor, size: Size) -> int:  # noqa: ARG001
        usual = _positive(processor.config.get("mm_tokens_per_image"), default)
        return processor.number("image_seq_length", usual)

    return count


def _pixtral(processor: Processor, size: Size) -> int:
    """Scale to the longest edge; one token a cell, and one that ends each row."""
    patch = processor.side("patch_size", "height", processor.vision_number("patch_size", 16))
    merge = processor.number("spatial_merge_size", 0) or _of(processor.config, "spatial_merge_size")
    cell = patch * merge
    longest = processor.side("size", "longest_edge", 1024)
    width, height = size
    ratio = max(height / longest, width / longest)
    if ratio > 1:
        width, height = math.floor(width / ratio), math.floor(height / ratio)
    columns, rows = (max(1, (one - 1) // cell + 1) for one in (width, height))
    return (columns + 1) * rows


def _of(config: Mapping[str, Any], name: str) -> int:
    return _positive(config.get(name), 1)


def _idefics3(processor: Processor, size: Size) -> int:
    """Count tiles with a tag each, line ends, and the whole picture with its own tags."""
    tile = processor.side("max_image_size", "longest_edge", 364)
    longest = processor.side("size", "longest_edge", 4 * 364)
    each = processor.number("image_seq_len", _idefics_tokens(processor, tile))
    whole = each + 3
    if not processor.flag("do_image_splitting", default=True):
        return whole
    width, height = _bounded(_stretched(size, longest))
    columns, rows = math.ceil(width / tile), math.ceil(height / tile)
    if columns * rows == 1:
        return whole
    return whole + rows * ((each + 2) * columns + 1)


def _idefics_tokens(processor: Processor, tile: int) -> int:
    scale = _of(processor.config, "scale_factor")
    return (tile // processor.vision_number("patch_size", 14) // scale) ** 2


def _stretched(size: Size, longest: int) -> Size:
    """Scale the longer side to a length, the other to an even one."""
    width, height = size
    ratio = width / height
    if width >= height:
        short = int(longest / ratio)
        return longest, max(1, short + short % 2)
    short = int(longest * ratio)
    return max(1, short + short % 2), longest


def _bounded(size: Size) -> Size:
    width, height = size
    ratio = width / height
    if width >= height and width > LARGEST_SIDE:
        return LARGEST_SIDE, max(1, int(LARGEST_SIDE / ratio))
    if height > width and height > LARGEST_SIDE:
        return max(1, int(LARGEST_SIDE * ratio)), LARGEST_SIDE
    return size


# model_type → how its processor counts
COUNTS: Mapping[str, Count] = {
    "qwen2_vl": _qwen,
    "qwen2_5_vl": _qwen,
    "qwen3_vl": _qwen,
    "qwen3_vl_moe": _qwen,
    "qwen3_5": _qwen,
    "qwen3_5_moe": _qwen,
    "llava": _llava,
    "llava_next": _llava_next,
    "internvl": _internvl,
    "gemma3": _fixed(256),
    "paligemma": _fixed(256),
    "pixtral": _pixtral,
    "mistral3": _pixtral,
    "idefics3": _idefics3,
    "smolvlm": _idefics3,
}
