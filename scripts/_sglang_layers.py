"""What SGLang's layers ask before they have weights: types, heads over devices, attention."""

from __future__ import annotations

import contextlib
import inspect
import re
import traceback
import types
from functools import partial
from pathlib import Path
from typing import Any

import _stand_ins
from _sglang_differences import effective

ATTENTION = ("attention_backend", "prefill_attention_backend", "decode_attention_backend")
# Where a registry or a backend asks for latent attention that the model lacks.
LACKS = "'ModelConfig' object has no attribute"


class Runner(types.SimpleNamespace):
    """A runner of a model with stand-ins for what only a GPU has."""

    def __getattr__(self, name: str) -> Any:
        return _stand_ins.stand_in(name)


def type_on_device(model: Any) -> Any:
    """Return the type that the device is loaded with, as srt/model_executor decides it."""
    from sglang.srt.model_executor.model_runner_components import load_model_utils as loading

    nothing = types.SimpleNamespace(override=lambda *_, **__: None)
    if hasattr(loading, "get_context"):
        loading.get_context = lambda: nothing  # it keeps a record of what was replaced
    loading.maybe_downgrade_dtype_for_legacy_gpu(model_config=model)
    return model.dtype


def check_layers(arguments: Any, model: Any) -> None:
    """Look up the class, split heads and look up attention; raise what the engine raises."""
    check_architecture(model)
    is_latent = getattr(model.attention_arch, "name", "") == "MLA"
    if model.num_attention_heads and not is_latent:
        split_heads(model, attention_degree(arguments))
    runner = Runner(
        use_mla_backend=is_latent, model_config=model, server_args=arguments, device="meta"
    )
    for name in filter(None, (effective(arguments, one) for one in ATTENTION)):
        look_up(str(name), runner)


def check_architecture(model: Any) -> None:
    """Ask whether transformers' class runs under SGLang, where SGLang has none of its own."""
    from sglang.srt.model_loader import utils

    own = (Path(utils.__file__).parents[1] / "models").glob("*.py")
    classes = re.compile(rf"^class ({'|'.join(model.hf_config.architectures)})\b", re.MULTILINE)
    if not any(classes.search(path.read_text("utf-8")) for path in own):
        utils.resolve_transformers_arch(model, model.hf_config.architectures)


def attention_degree(arguments: Any) -> int:
    """Return over how many devices the heads of a copy of attention go."""
    copies = effective(arguments, "dp_size") if effective(arguments, "enable_dp_attention") else 1
    if hasattr(arguments, "attn_dp_size"):
        copies = effective(arguments, "attn_dp_size")
    return int(effective(arguments, "tp_size")) // int(copies or 1)


def split_heads(model: Any, degree: int) -> None:
    """Build the layer of queries, keys and values as one of so many devices does."""
    import torch
    from sglang.srt.layers import linear

    layer, ranks = linear.QKVParallelLinear, {"tp_rank": 0, "tp_size": degree}
    if "tp_size" not in inspect.signature(layer.__init__).parameters:  # since 0.5.23
        ranks = {}
        linear._resolve_linear_group = lambda *_: None
        linear.get_group_rank_size = lambda *_: (0, degree)
    with torch.device("meta"):
        try:
            layer(
                model.hidden_size,
                model.head_dim,
                model.num_attention_heads,
                model.get_total_num_kv_heads(),
                **ranks,
            )
        except AssertionError:
            raise
        except Exception:  # what only a GPU has, behind the division
            return


def look_up(name: str, runner: Any) -> None:
    """Ask the registry for an attention backend; what its kernels lack here says nothing."""
    from sglang.srt import runtime_context
    from sglang.srt.layers.attention import attention_registry

    for part in {type(runtime_context._CONTEXT), type(runtime_context.get_parallel())}:
        for reads in filter(partial(hasattr, part), ("config_bag", "_read")):
            setattr(part, reads, lambda _, asked: _stand_ins.stand_in(asked))
    try:
        with contextlib.suppress(ImportError):
            attention_registry.ATTENTION_BACKENDS[name](runner)
    except (KeyError, ValueError, AssertionError, AttributeError) as error:
        last = traceback.extract_tb(error.__traceback__)[-1].filename
        if last.endswith("attention_registry.py") or LACKS in str(error):
            raise
    except Exception:
        return
