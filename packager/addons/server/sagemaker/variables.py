"""Variables of a job's environments, and their meaning for a build: tables only.

The names are of LMI (`OPTION_*`), of the entrypoints that translate into them, of TGI, and of the
containers that AWS's optimization jobs run in: djl-serving 0.36.0-lmi27-dlc and its partition
scripts of 0.32.0-dlc, text-generation-inference 3.3, read 2026-11-22.
"""

from __future__ import annotations

OPTION = "OPTION_"
ENGINE_PREFIXES = {"SM_VLLM_": "vllm", "SM_SGLANG_": "sglang"}

# Variables without a prefix → the option that they set.
TRANSLATED = {
    "TENSOR_PARALLEL_DEGREE": "tensor_parallel_degree",
    "SM_NUM_GPUS": "tensor_parallel_degree",
    "NUM_SHARD": "tensor_parallel_degree",
    "PIPELINE_PARALLEL_DEGREE": "pipeline_parallel_degree",
    "HF_MODEL_ID": "model_id",
    "HF_MODEL_QUANTIZE": "quantize",
    "QUANTIZE": "quantize",
    "HF_MODEL_TRUST_REMOTE_CODE": "trust_remote_code",
    "TRUST_REMOTE_CODE": "trust_remote_code",
    "MAX_BATCH_PREFILL_TOKENS": "max_rolling_batch_prefill_tokens",
    "MAX_BATCH_SIZE": "max_rolling_batch_size",
    "MAX_INPUT_LENGTH": "max_input_length",
    "MAX_INPUT_TOKENS": "max_input_length",
    "MAX_TOTAL_TOKENS": "max_model_len",
    "MAX_MODEL_LEN": "max_model_len",
    "CUDA_MEMORY_FRACTION": "gpu_memory_utilization",
    "DTYPE": "dtype",
}

# option → field of a request whose value is a whole number
NUMBERS = {
    "tensor_parallel_degree": "tp_degree",
    "tensor_parallel_size": "tp_degree",
    "tp_size": "tp_degree",
    "pipeline_parallel_degree": "pp_degree",
    "pipeline_parallel_size": "pp_degree",
    "max_model_len": "max_total_tokens",
    "n_positions": "max_total_tokens",
    "context_length": "max_total_tokens",
    "max_input_length": "max_input_tokens",
    "max_input_len": "max_input_tokens",
    "max_rolling_batch_size": "max_batch",
    "max_num_seqs": "max_batch",
    "max_running_requests": "max_batch",
    "batch_size": "max_batch",
    "max_batch_size": "max_batch",
    "max_num_sequences": "max_batch",
    "max_rolling_batch_prefill_tokens": "max_prefill_tokens",
    "max_num_batched_tokens": "max_prefill_tokens",
    "max_num_tokens": "max_prefill_tokens",
    "speculative_length": "speculative_tokens",
    "num_speculative_tokens": "speculative_tokens",
    "calib_size": "calibration_samples",
    "calib_max_seq_length": "calibration_tokens",
}
DEGREES = frozenset({"tp_degree", "pp_degree"})  # of the instance that a job names

# option → field of a request, and how each value is spelled there
WORDS: dict[str, tuple[str, dict[str, str]]] = {
    "dtype": (
        "dtype",
        {
            **dict.fromkeys(("bf16", "bfloat16"), "bfloat16"),
            **dict.fromkeys(("fp16", "float16", "half"), "float16"),
            "auto": "auto",
        },
    ),
    "kv_cache_dtype": ("kv_dtype", {"auto": "auto", "fp8": "fp8", "fp8_e4m3": "fp8"}),
}

# option → field of a request that takes the text as it is
TEXTS = {
    "served_model_name": "served_name",
    "tool_call_parser": "tool_call_parser",
    "reasoning_parser": "reasoning_parser",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "calib_dataset": "calibration",
}

# option → the values that match what happens here anyway
SAME_HERE: dict[str, tuple[str, ...]] = {
    "engine": ("Python", "MPI"),
    "rolling_batch": ("auto", "vllm", "lmi-dist", "scheduler", "disable"),
    "async_mode": ("true", "false"),
    "mpi_mode": ("true", "false"),
    "task": ("auto", "generate", "text-generation"),
    "entrypoint": (
        "djl_python.huggingface",
        "djl_python.lmi_vllm.vllm_async_service",
        "djl_python.transformers_neuronx",
    ),
    **dict.fromkeys(("model_id", "model", "model_path"), ("/opt/ml/model", "/opt/ml/model/")),
    "load_format": ("auto", "safetensors", "sagemaker_fast_model_loader"),
    "awq_weight_bit_width": ("4",),
    "awq_mm_version": ("GEMM", "gemm"),
    "smoothquant_per_token": ("true",),
    "smoothquant_per_channel": ("true",),
    "enable_auto_tool_choice": ("true",),
    "device_map": ("auto",),
}

# Accepted without effect: they change how AWS's tools work, not their result.
WITHOUT_MEANING = frozenset({"calib_batch_size", "save_mp_checkpoint_path", "parallel_loading"})

# Variables of the libraries in a container, which AWS documents by naming their projects.
OF_LIBRARIES = (
    *("HF_HUB_", "HF_DATASETS_", "TRANSFORMERS_", "TOKENIZERS_", "TORCH_", "PYTORCH_", "NCCL_"),
    *("CUDA_", "OMP_", "VLLM_", "SGLANG_", "NEURON_"),
)

# Settings of a server that starts: they belong to the model that is made of the job's result.
OF_DEPLOYMENT = ("SERVING_", "SAGEMAKER_", "DJL_", "SM_NEO_")
OF_DEPLOYMENT_NAMES = frozenset(
    {
        "ENDPOINT_SERVER_TIMEOUT",
        "MODEL_CACHE_ROOT",
        "MODEL_LOADING_TIMEOUT",
        "PREDICT_TIMEOUT",
        "HF_TASK",
        "HF_HOME",
        "HF_HUB_OFFLINE",
        "TRANSFORMERS_OFFLINE",
        "OPTION_MODEL_LOADING_TIMEOUT",
        "OPTION_PREDICT_TIMEOUT",
    }
)

# The hub's token, by the names that containers of AWS read it from; `HUB_TOKEN` is ours.
HUB_TOKEN = "HF_TOKEN"
TOKENS = frozenset({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_API_TOKEN"})

# Quantizations at the start of an engine, which a build does not make.
NOT_MADE = frozenset(
    {"load_in_8bit", "load_in_4bit", "neuron_quant", "speculative_model_quantization"}
)

SECRETS = frozenset({"TOKEN", "SECRET", "PASSWORD", "KEY", "CREDENTIALS"})  # words in names

METHODS = (
    *("awq", "fp8", "smoothquant", "gptq", "nvfp4", "mxfp4", "mxfp8", "w4afp8", "int8"),
    "autoround",
)
Q_FORMATS = {"int4_awq": "awq", "fp8": "fp8", "int8_sq": "smoothquant"}
QUANTIZE_OPTIONS = frozenset(
    {
        "awq_zero_point",
        "awq_block_size",
        "awq_ignore_layers",
        "fp8_scheme",
        "fp8_ignore",
        "fp8_ignore_patterns",
        "fp8_activation_scheme",
        "fp8_kv_cache_quant_targets",
        "smoothquant_alpha",
    }
)
DRAFT_MODELS = frozenset({"speculative_draft_model", "speculative_model"})
