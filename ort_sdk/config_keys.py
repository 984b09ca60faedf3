"""Every session config key that the host reads, in one table. Keys that are not in it are kept and ignored.

It is imported by all stages: each reads its keys from here, and spells none.
"""

from __future__ import annotations

from typing import Self

__all__ = ["CONFIG_KEYS", "RUN_CONFIG_KEYS", "ConfigKey"]


class ConfigKey(str):
    """One key of ``SessionOptions.add_session_config_entry``: its name, with what it means.

    Args:
        name: the key.
        default: what the host does as if this were set.
        meaning: a sentence for the reference.
        is_of_ort: whether ONNX Runtime has a key of that name and meaning.
    """

    __slots__ = ("default", "is_of_ort", "meaning")

    default: str
    is_of_ort: bool
    meaning: str

    def __new__(cls, name: str, default: str, meaning: str, *, is_of_ort: bool = True) -> Self:
        key = super().__new__(cls, name)
        key.default, key.meaning, key.is_of_ort = default, meaning, is_of_ort
        return key

    @property
    def name(self) -> str:
        """The key as a plain string."""
        return str(self)


CONSTANT_FOLDING_MAX_OUTPUT_SIZE_IN_BYTES = ConfigKey(
    "optimization.constant_folding_max_output_size_in_bytes",
    "1073741824",
    "Constants that folding would make beyond this size are computed in each run instead; `0` caches no limit.",
)
DISABLE_SPECIFIED_OPTIMIZERS = ConfigKey(
    "optimization.disable_specified_optimizers",
    "",
    "Names of graph passes to leave out, separated by `;` or `,`.",
)
ENABLE_GELU_APPROXIMATION = ConfigKey(
    "optimization.enable_gelu_approximation", "0", "`1`: Gelu may be replaced by the faster FastGelu, which is not exact."
)
MINIMAL_BUILD_OPTIMIZATIONS = ConfigKey(
    "optimization.minimal_build_optimizations",
    "",
    "`save`: fusions that a minimal build of ONNX Runtime has are recorded in the saved model (ORT format), and not made. "
    "`apply`: they are made, and no others after the basic passes. Empty: all.",
)
COMPILATION = ConfigKey(
    "session.compilation",
    "background",
    "What happens where a kernel needs code that is not compiled yet. `background`: other kernels compute, while a process of "
    "low priority compiles it. `wait`: creation or run wait for it. `never`: kernels that need compiled code are not used. "
    "Without an entry, the environment variable `ORT_SDK_COMPILATION` has the mode.",
    is_of_ort=False,
)
DISABLE_AOT_FUNCTION_INLINING = ConfigKey(
    "session.disable_aot_function_inlining",
    "0",
    "`1`: functions of the model are inlined where no provider has a kernel for the call, but only after the basic passes.",
)
DISABLE_CPU_EP_FALLBACK = ConfigKey(
    "session.disable_cpu_ep_fallback",
    "0",
    "`1`: a node on the CPU provider is an error (`Fail`); naming the CPU provider as well is one too (`InvalidArgument`).",
)
DISABLE_PREPACKING = ConfigKey(
    "session.disable_prepacking", "0", "`1`: kernels read constant inputs as they are; `prepack` is not asked."
)
DISABLE_PROGRAMS = ConfigKey(
    "session.disable_programs",
    "0",
    "`1`: every run goes step by step; no programs are made.",
    is_of_ort=False,
)
DISABLE_QUANT_QDQ = ConfigKey(
    "session.disable_quant_qdq",
    "0",
    "`1`: DequantizeLinear is folded like any other operator, and no integer operators are made of it.",
)
ENABLE_DQ_MATMULNBITS_FUSION = ConfigKey(
    "session.enable_dq_matmulnbits_fusion",
    "0",
    "`1`: MatMul with dequantized uint4 weights in the two layouts of ONNX Runtime's fusion of this name becomes MatMulNBits "
    "before nodes are placed, if the first provider of the MatMul has it.",
)
ENABLE_SAVED_RUNTIME_OPTIMIZATIONS = ConfigKey(
    "session.enable_saved_runtime_optimizations",
    "0",
    "`1`: fusions recorded in a model in ORT format are made, from the level of the extended passes on.",
)
EXECUTION_MODE = ConfigKey(
    "session.execution_mode", "sequential", "What providers get of `execution_mode`: `sequential` or `parallel`."
)
INTER_OP_NUM_THREADS = ConfigKey("session.inter_op_num_threads", "0", "What providers get of `inter_op_num_threads`.")
INTRA_OP_ALLOW_SPINNING = ConfigKey(
    "session.intra_op.allow_spinning",
    "1",
    "CPU provider. `0`: waiting threads of its pool sleep at once, if the session is made before the pool is loaded.",
)
INTRA_OP_SPIN_DURATION_US = ConfigKey(
    "session.intra_op.spin_duration_us",
    "",
    "CPU provider. Waiting threads of its pool look for work for about this many microseconds before they sleep, if the "
    "session is made before the pool is loaded. Empty: some tens of microseconds.",
)
INTRA_OP_NUM_THREADS = ConfigKey("session.intra_op_num_threads", "0", "What providers get of `intra_op_num_threads`.")
LOAD_MODEL_FORMAT = ConfigKey(
    "session.load_model_format",
    "",
    "Format of the model: `ONNX` or `ORT`. Empty: ORT for a path that ends in `.ort`, and for bytes with its identifier.",
)
LOG_SEVERITY_LEVEL = ConfigKey("session.log_severity_level", "-1", "What providers get of `log_severity_level`.", is_of_ort=False)
MODEL_EXTERNAL_INITIALIZERS_FILE_FOLDER_PATH = ConfigKey(
    "session.model_external_initializers_file_folder_path",
    "",
    "Folder of external data. Empty: the model's own folder; for a model given as bytes, the current one.",
)
OPTIMIZED_MODEL_EXTERNAL_INITIALIZERS_FILE_NAME = ConfigKey(
    "session.optimized_model_external_initializers_file_name",
    "",
    "With `optimized_model_filepath`: name of the file that takes the weights. Empty: they are written inline.",
)
OPTIMIZED_MODEL_EXTERNAL_INITIALIZERS_MIN_SIZE_IN_BYTES = ConfigKey(
    "session.optimized_model_external_initializers_min_size_in_bytes",
    "1024",
    "With the key above: weights of fewer bytes are written inline.",
)
PREPACK_CACHE_DIR = ConfigKey(
    "session.prepack_cache_dir",
    "",
    "Folder where weights that kernels rearrange are kept for later sessions and processes. Empty: `weights` in the folder that "
    "the environment variable `ORT_SDK_CACHE_DIR` names, if it is set. Trusted as far as its owner: see SECURITY.md.",
    is_of_ort=False,
)
PROGRAM_MEMORY_LIMIT_BYTES = ConfigKey(
    "session.program_memory_limit_bytes",
    "1073741824",
    "Bytes that workspace and folded values of programs may take, of the main graph and of bodies, of all shapes and "
    "of all runs at the same time. Programs for one run at a time are always made; others go step by step where there is no "
    "room.",
    is_of_ort=False,
)
QDQ_MATMULNBITS_ACCURACY_LEVEL = ConfigKey(
    "session.qdq_matmulnbits_accuracy_level",
    "4",
    "`accuracy_level` (0 to 4) of the MatMulNBits nodes that DequantizeLinear and MatMul or Gemm become; 4 lets kernels "
    "compute with 8-bit activations, 0 and 1 ask for float32.",
)
QDQ_MATMULNBITS_BLOCK_SIZE = ConfigKey(
    "session.qdq_matmulnbits_block_size",
    "0",
    "Block size of those nodes where the weight has one scale, or one per channel: 16 to 256, `0` for 32, `-1` for the "
    "largest with the least padding.",
)
RECORD_EP_GRAPH_ASSIGNMENT_INFO = ConfigKey(
    "session.record_ep_graph_assignment_info",
    "0",
    "`1`: `get_provider_graph_assignment_info` says which provider took each node.",
)
SAVE_EXTERNAL_PREPACKED_CONSTANT_INITIALIZERS = ConfigKey(
    "session.save_external_prepacked_constant_initializers",
    "0",
    "`1`: with `optimized_model_filepath` and a file for the weights, rearranged weights are saved, too.",
)
SAVE_MODEL_FORMAT = ConfigKey(
    "session.save_model_format",
    "",
    "Format of the optimized model: `ONNX` or `ORT`. Empty: ORT if `optimized_model_filepath` ends in `.ort`.",
)

DISABLE_SYNCHRONIZE_EXECUTION_PROVIDERS = ConfigKey(
    "disable_synchronize_execution_providers",
    "0",
    "`1`: a run does not wait at its end for what it queued on memory that others know the address of; "
    "`IOBinding.synchronize_outputs` does. It waits for results on the host in any case.",
)
"""Of ``RunOptions.add_run_config_entry``."""

RUN_CONFIG_KEYS: tuple[ConfigKey, ...] = (DISABLE_SYNCHRONIZE_EXECUTION_PROVIDERS,)
"""Those of one run."""

CONFIG_KEYS: tuple[ConfigKey, ...] = (
    CONSTANT_FOLDING_MAX_OUTPUT_SIZE_IN_BYTES,
    DISABLE_SPECIFIED_OPTIMIZERS,
    ENABLE_GELU_APPROXIMATION,
    MINIMAL_BUILD_OPTIMIZATIONS,
    COMPILATION,
    DISABLE_AOT_FUNCTION_INLINING,
    DISABLE_CPU_EP_FALLBACK,
    DISABLE_PREPACKING,
    DISABLE_PROGRAMS,
    DISABLE_QUANT_QDQ,
    ENABLE_DQ_MATMULNBITS_FUSION,
    ENABLE_SAVED_RUNTIME_OPTIMIZATIONS,
    EXECUTION_MODE,
    INTER_OP_NUM_THREADS,
    INTRA_OP_ALLOW_SPINNING,
    INTRA_OP_SPIN_DURATION_US,
    INTRA_OP_NUM_THREADS,
    LOAD_MODEL_FORMAT,
    LOG_SEVERITY_LEVEL,
    MODEL_EXTERNAL_INITIALIZERS_FILE_FOLDER_PATH,
    OPTIMIZED_MODEL_EXTERNAL_INITIALIZERS_FILE_NAME,
    OPTIMIZED_MODEL_EXTERNAL_INITIALIZERS_MIN_SIZE_IN_BYTES,
    PREPACK_CACHE_DIR,
    PROGRAM_MEMORY_LIMIT_BYTES,
    QDQ_MATMULNBITS_ACCURACY_LEVEL,
    QDQ_MATMULNBITS_BLOCK_SIZE,
    RECORD_EP_GRAPH_ASSIGNMENT_INFO,
    SAVE_EXTERNAL_PREPACKED_CONSTANT_INITIALIZERS,
    SAVE_MODEL_FORMAT,
)
"""All of them, sorted by name."""
