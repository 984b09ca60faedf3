"""Every session config key that the host reads, in one table. Keys that are not in it are kept and ignored."""

from __future__ import annotations

from ort_sdk.api.data_classes import dataclass

__all__ = ["CONFIG_KEYS", "ConfigKey"]


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key of ``SessionOptions.add_session_config_entry``."""

    name: str
    default: str
    """What the host does as if this were set."""
    meaning: str
    is_of_ort: bool = True
    """Whether ONNX Runtime has a key of that name and meaning."""


CONFIG_KEYS = (
    ConfigKey(
        "optimization.constant_folding_max_output_size_in_bytes",
        "1073741824",
        "Constants that folding would make beyond this size are computed in each run instead; `0` sets no limit.",
    ),
    ConfigKey(
        "optimization.disable_specified_optimizers",
        "",
        "Names of graph passes to leave out, separated by `;` or `,`.",
    ),
    ConfigKey(
        "optimization.enable_gelu_approximation", "0", "`1`: Gelu may be replaced by the faster FastGelu, which is not exact."
    ),
    ConfigKey(
        "optimization.minimal_build_optimizations",
        "",
        "`save`: fusions that a minimal build of ONNX Runtime has are recorded in the saved model (ORT format), and not made. "
        "`apply`: they are made, and no others behind the basic passes. Empty: all.",
    ),
    ConfigKey(
        "session.disable_aot_function_inlining",
        "0",
        "`1`: functions of the model are inlined where no provider has a kernel for the call, but only after the basic passes.",
    ),
    ConfigKey(
        "session.disable_cpu_ep_fallback",
        "0",
        "`1`: a node on the CPU provider is an error (`Fail`); naming the CPU provider as well is one too (`InvalidArgument`).",
    ),
    ConfigKey("session.disable_prepacking", "0", "`1`: kernels read constant inputs as they are; `prepack` is not asked."),
    ConfigKey(
        "session.disable_programs",
        "0",
        "`1`: every run goes step by step; no programs are made.",
        is_of_ort=False,
    ),
    ConfigKey(
        "session.disable_quant_qdq",
        "0",
        "`1`: DequantizeLinear is folded like any other operator, and no integer operators are made of it.",
    ),
    ConfigKey(
        "session.enable_dq_matmulnbits_fusion",
        "0",
        "`1`: products by dequantised uint4 weights in the two layouts of ONNX Runtime's fusion of this name become MatMulNBits "
        "before nodes are placed, if the first provider of the product has it.",
    ),
    ConfigKey(
        "session.enable_saved_runtime_optimizations",
        "0",
        "`1`: fusions recorded in a model in ORT format are made, from the level of the extended passes on.",
    ),
    ConfigKey("session.execution_mode", "sequential", "What providers are told of `execution_mode`: `sequential` or `parallel`."),
    ConfigKey("session.inter_op_num_threads", "0", "What providers are told of `inter_op_num_threads`."),
    ConfigKey(
        "session.intra_op.allow_spinning",
        "1",
        "CPU provider. `0`: waiting threads of its pool sleep at once, if the session is made before the pool is loaded.",
    ),
    ConfigKey(
        "session.intra_op.spin_duration_us",
        "",
        "CPU provider. Waiting threads of its pool look for work for about this many microseconds before they sleep, if the "
        "session is made before the pool is loaded. Empty: some tens of microseconds.",
    ),
    ConfigKey("session.intra_op_num_threads", "0", "What providers are told of `intra_op_num_threads`."),
    ConfigKey(
        "session.load_model_format",
        "",
        "Format of the model: `ONNX` or `ORT`. Empty: ORT for a path that ends in `.ort`, and for bytes with its identifier.",
    ),
    ConfigKey("session.log_severity_level", "-1", "What providers are told of `log_severity_level`.", is_of_ort=False),
    ConfigKey(
        "session.model_external_initializers_file_folder_path",
        "",
        "Folder of external data. Empty: the model's own folder; for a model given as bytes, the current one.",
    ),
    ConfigKey(
        "session.optimized_model_external_initializers_file_name",
        "",
        "With `optimized_model_filepath`: name of the file that takes the weights. Empty: they are written inline.",
    ),
    ConfigKey(
        "session.optimized_model_external_initializers_min_size_in_bytes",
        "1024",
        "With the key above: weights of fewer bytes are written inline.",
    ),
    ConfigKey(
        "session.prepack_cache_dir",
        "",
        "Folder where weights that kernels rearrange are kept for later sessions and processes. Empty: nowhere. Trusted as far "
        "as its owner: see SECURITY.md.",
        is_of_ort=False,
    ),
    ConfigKey(
        "session.program_memory_limit_bytes",
        "1073741824",
        "Bytes that working memory and folded values of programs may take, of the main graph and of bodies, of all shapes and "
        "of all runs at the same time. Programs for one run at a time are always made; others go step by step where there is no "
        "room.",
        is_of_ort=False,
    ),
    ConfigKey(
        "session.qdq_matmulnbits_accuracy_level",
        "4",
        "`accuracy_level` (0 to 4) of the MatMulNBits nodes that DequantizeLinear and MatMul or Gemm become; 4 lets kernels "
        "compute with 8-bit activations, 0 and 1 ask for float32.",
    ),
    ConfigKey(
        "session.qdq_matmulnbits_block_size",
        "0",
        "Block size of those nodes where the weight has one scale, or one per channel: 16 to 256, `0` for 32, `-1` for the "
        "largest with the least padding.",
    ),
    ConfigKey(
        "session.record_ep_graph_assignment_info",
        "0",
        "`1`: `get_provider_graph_assignment_info` tells which provider took each node.",
    ),
    ConfigKey(
        "session.save_external_prepacked_constant_initializers",
        "0",
        "`1`: with `optimized_model_filepath` and a file for the weights, rearranged weights are saved, too.",
    ),
    ConfigKey(
        "session.save_model_format",
        "",
        "Format of the optimized model: `ONNX` or `ORT`. Empty: ORT if `optimized_model_filepath` ends in `.ort`.",
    ),
)
