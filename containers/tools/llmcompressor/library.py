"""What of the libraries is no public interface, and is patched, overridden or called here.

For each name: the version that it was read in, the digest of its source, and what it is for.
After an upgrade `scripts/library-names` tells which of them are others; once their changes are
read, `--accept` writes the new digests here.
"""

from __future__ import annotations

from functools import cache

from private_names import PrivateNames

# What `searching.py` does in another order: it has the library's numbers as long as these are so.
SEARCH = {
    "llmcompressor.modifiers.transform.awq.base": {
        "AWQModifier._compute_best_scale": "0.14.0.1 8330cd9a56f1 the search itself",
        "AWQModifier._compute_layer_means": "0.14.0.1 50098e9c7b4d means of weights, called",
        "AWQModifier._get_grid_search_params": "0.14.0.1 30a103b9aaf9 what is tried, called",
        "AWQModifier._compute_loss": "0.14.0.1 88fce8a3e636 called, but for float16",
        "AWQModifier._run_samples": "0.14.0.1 1c870bddd3c7 texts pass beside each other instead",
        "AWQModifier._apply_smoothing": "0.14.0.1 10f37fdba5cc calls it; one fold at a time",
        "AWQModifier._setup_activation_cache_hooks": "0.14.0.1 6ebc5b0f57a5 collects the means",
        "AWQModifier._smooth_activation_stats": "0.14.0.1 0d654e20ba24 the means",
        "AWQModifier._parent_args_cache": "0.14.0.1 0d654e20ba24 the texts",
        "AWQModifier._error_metrics": "0.14.0.1 0941d5609d6c what the search tells",
    },
    "llmcompressor.modifiers.quantization.calibration": {
        "observe": "0.14.0.1 014861aec950 smallest and largest weight of a group",
        "update_qparams": "0.14.0.1 3390a31ffd26 scales and zero points from these",
    },
    "llmcompressor.observers.base": {"Observer": "0.14.0.1 118b483f3d66 calls `calculate_qparams`"},
    "llmcompressor.observers.min_max": {
        "MemorylessMinMaxObserver": "0.14.0.1 d3442c7b8d94 what the search observes with",
        "_get_min_max": "0.14.0.1 f820ec1f8679 smallest and largest weight of a group",
    },
    "llmcompressor.observers.helpers": {
        "_flatten_weight": "0.14.0.1 daa73cda550e the groups of a matrix",
        "fuse_weight_observers": "0.14.0.1 be0126e2f0e1 fuses those of tensor-groups alone",
    },
    "llmcompressor.observers.fusion": {
        "FusionHandler": "0.14.0.1 4a0534d3655b tells fused groups alone"
    },
    "compressed_tensors.quantization.lifecycle.forward": {
        "forward_quantize": "0.19.0 3eea7295c1f2 rounds a weight",
        "fake_quantize": "0.19.0 845057fe70c4 rounds and unrounds",
        "_process_quantization": "0.19.0 26bdc7a01c69 chooses by strategy",
        "set_forward_quantized": "0.19.0 a98af6f84ff7 the `forward` that replicas have",
    },
    "compressed_tensors.quantization.lifecycle.forward_helpers": {
        "_process_group": "0.19.0 b152db3b1720 rounds by groups",
        "_apply_quantize_op": "0.19.0 f0945f77111e chooses what rounds",
        "_quantize_dequantize": "0.19.0 7cf1be91c85d the operations, and the types between them",
    },
    "compressed_tensors.quantization.quant_args": {
        "QuantizationArgs": "0.19.0 16812fdce75a what a scheme says",
        "round_to_quantized_type_args": "0.19.0 34f22d89fc80 clamps and rounds weights",
        "round_to_quantized_type_dtype": "0.19.0 b2ff086461ff clamps and rounds zero points",
    },
    "compressed_tensors.quantization.utils.helpers": {
        "calculate_qparams": "0.19.0 81b10abb2793 called",
        "calculate_range": "0.19.0 25a482aa8812 called",
        "_calculate_range": "0.19.0 74abcd414b2b called by `calculate_range`",
        "_get_dtype_eps": "0.19.0 d1243f78393d the scale of a group of zeros",
    },
    "llmcompressor.utils.helpers": {
        "calibration_forward_context": "0.14.0.1 ce89ee08ff9f what holds while texts pass",
        "DisableQuantization": "0.14.0.1 ecccf656eb9c activations are not rounded while texts pass",
    },
    "compressed_tensors.offload.dist_utils": {
        "is_distributed": "0.19.0 cdc8fa280b6e several processes"
    },
    "torch.nn.modules.module": {
        "Module.__init__": "2.13.0+cpu d03e0e800358 the tables that a replica has of its own"
    },
    "torch.utils._pytree": {"tree_leaves": "2.13.0+cpu 5fdc4a1e690f tensors of a text, to count"},
}
FOLDING = {
    "llmcompressor.modifiers.transform.awq.base": {
        "AWQModifier._set_resolved_mappings": "0.14.0.1 339d5860c85c overridden: folds found",
        "AWQModifier._resolved_mappings": "0.14.0.1 0941d5609d6c one at a time; tell what changed",
        "AWQModifier.on_initialize": "0.14.0.1 0e470abba0e9 asks for mappings by name first",
        "get_lowest_common_ancestor_with_avoid": "0.14.0.1 91458d47c95e whose outputs are compared",
    },
    "llmcompressor.modifiers.transform.awq.mappings": {
        "ResolvedMapping": "0.14.0.1 6e15e19358a4 made from folds"
    },
    "llmcompressor.modifiers.transform.smoothquant.base": {
        "SmoothQuantMapping": "0.14.0.1 3c50dbdf2d00 made from folds",
        "SmoothQuantScale": "0.14.0.1 97c6dcd2d02a set to magnitudes",
        "SmoothQuantModifier.on_initialize": "0.14.0.1 96079111b228 calls the overridden",
        "SmoothQuantModifier.on_finalize": "0.14.0.1 8397c894386d fails for scales that are left",
        "SmoothQuantModifier._infer_mappings_from_model": "0.14.0.1 552b32a24830 overridden: none",
        "SmoothQuantModifier._resolve_mappings": "0.14.0.1 fdfcbed74b9f overridden: folds found",
        "SmoothQuantModifier._setup_scale_hooks": "0.14.0.1 9f6114e00d58 overridden: keeps inputs",
        "SmoothQuantModifier._apply_smoothing": "0.14.0.1 0b56ad0442a3 one fold at a time",
        "SmoothQuantModifier._calculate_smoothing_scales": "0.14.0.1 5cfbe06d2a77 bounded",
    },
    "llmcompressor.modeling.offset_norm": {
        "NormCalibrationModule": "0.14.0.1 922c0ec23305 knows norms that add 1",
        "norm_calibration_context": "0.14.0.1 2c1905b6cb67 must find no norm to replace",
    },
    "llmcompressor.modeling.moe.context": {
        "moe_calibration_context": "0.14.0.1 c77e5817548d every expert sees every token"
    },
}
KEEPING = {
    "llmcompressor.pipelines.sequential.pipeline": {
        "SequentialPipeline.__call__": "0.14.0.1 1e2a44ec5774 the loop over the blocks left",
        "trace_subgraphs": "0.14.0.1 5dc83a3a39a5 patched: the blocks that are left",
    },
    "llmcompressor.pipelines.sequential.helpers": {
        "Subgraph": "0.14.0.1 a48390f841c7 a block, and its modules"
    },
    "llmcompressor.pipelines.data_free.pipeline": {
        "DataFreePipeline.__call__": "0.14.0.1 bb0e642e0b98 raises the event for the whole model",
        "LifecycleCallbacks": "0.14.0.1 aac23350415a patched: layer by layer",
    },
    "llmcompressor.core.session_functions": {
        "LifecycleCallbacks": "0.14.0.1 aac23350415a `sequential_epoch_end` is patched: progress"
    },
    "llmcompressor.pipelines.cache": {
        "IntermediatesCache": "0.14.0.1 0d05444dff98 patched: kept ones; no pinning on CPUs",
        "IntermediateValue": "0.14.0.1 057044bfafdb written to files",
    },
    "compressed_tensors.compressors.model_compressors.model_compressor": {
        "ModelCompressor.compress_model": "0.19.0 f77e1f3167fe calls what is patched",
        "compress_module": "0.19.0 a0259b24226e patched: what is packed already",
    },
    "compressed_tensors.compressors.base": {
        "BaseCompressor.compress_module": "0.19.0 bc945b38ea80 how it leaves a packed module"
    },
    "torch": {"Tensor._version": "2.13.0+cpu d646416f331c whether activations are others"},
}
# Public, and relied on for more than the interface says.
RELIED = {
    "llmcompressor.args.dataset_arguments": {
        "DatasetArguments": "0.14.0.1 d52b55488a79 defaults of what `oneshot` is not told",
    },
    "llmcompressor.modifiers.gptq.base": {
        "GPTQModifier": "0.14.0.1 ea894acdc2ae defaults; which tensors it changes, to keep",
    },
    "llmcompressor.modifiers.quantization.quantization.base": {
        "QuantizationModifier": "0.14.0.1 c775a4df1156 which tensors it changes, to keep",
    },
}
LOADING = {
    "llmcompressor.modeling.moe.linear_experts": {
        "LinearExperts2D": "0.14.0.1 12338a01aaf7 experts taken apart, and their names"
    },
    "llmcompressor.modeling.moe.linearize": {
        "linearize_moe": "0.14.0.1 503f91d784d4 called before `oneshot` does",
        "get_non_linearized_moes": "0.14.0.1 76d19d1e9385 which experts it takes apart",
    },
    "transformers.core_model_loading": {
        "rename_source_key": "5.17.0 181ece8b4be9 the model's name of a tensor",
        "WeightConverter": "5.17.0 295f3523056f what loading fuses",
        "WeightRenaming": "5.17.0 5cbcf4ff251a what loading renames",
        "MergeModulelist": "5.17.0 c2fd9adb2f1f fuses experts",
        "Concatenate": "5.17.0 7d0f4472591f fuses gate and up",
        "dot_natural_key": "5.17.0 078e8a21b630 the order of experts",
        "convert_and_load_state_dict_in_model": "5.17.0 7ea49a363767 sets `_weight_conversions`",
    },
    "transformers.models.falcon.modeling_falcon": {
        "FalconLinear": "5.17.0 a755730bf071 computes as torch's Linear, and is made one"
    },
}

PRIVATE = PrivateNames(SEARCH, FOLDING, KEEPING, RELIED, LOADING)


@cache
def search_is_known() -> bool:
    """Whether the library searches AWQ's scales as it did when it was read."""
    return not PrivateNames(SEARCH).changed()
