"""The device layer's kernels in CUDA's dialect: they compile for six generations of GPUs, within registers, without spills.

No GPU is needed: ONNX's cases are run on a provider that only keeps what would be launched, and each source is compiled.
"""

import contextlib
import os
import sys
from pathlib import Path

import pytest

import ort_sdk as ort
from ort_sdk.device import CUDA, GPU_CLASS
from ort_sdk.plugins import plugin_manager
from ort_sdk.testing.case_runs import run_repeatedly
from ort_sdk.testing.cases import load_cases

sys.path.insert(0, str(Path(__file__).parent))
try:
    import nvrtc
    import recording_provider
finally:
    sys.path.pop(0)

pytestmark = pytest.mark.skipif(
    nvrtc.LIBRARY is None or nvrtc.CUOBJDUMP is None,
    reason="CUDA's compiler is not installed: python -m pip install nvidia-cuda-nvrtc nvidia-cuda-cuobjdump",
)
ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
CASES = """
add_bcast adagrad and2d argmax_keepdims_random attention_4d averagepool_2d_default basic_conv_with_padding batchnorm_example
bitshift_left_uint32 cast_FLOAT_to_FLOAT16 cast_FLOAT_to_BFLOAT16 clip_example concat_3d_axis_1 conv_with_strides_padding
convtranspose cumsum_1d depthtospace_example dequantizelinear_axis einsum_batch_matmul elu erf expand_dim_changed gather_0
gather_elements_0 gathernd_example_float32 gelu_default_1 gemm_all_attributes globalaveragepool gru_defaults hardswish
instancenorm_example layer_normalization_4d_axis1 logsoftmax_axis_1 lrn lstm_defaults matmul_3d maxpool_2d_default
max_float32 mean_example mish mod_int64_fmod nonmaxsuppression_limit_output_size not_4d onehot_with_axis
pow_types_float32_int64 prelu_broadcast qlinearmatmul_2D_uint8_float32 quantizelinear_axis range_float_type_positive_delta
reduce_l2_keep_dims_random reduce_log_sum_exp_keepdims_random reduce_max_keepdims_random reduce_mean_keepdims_random
reduce_prod_keepdims_random resize_upsample_scales_linear rms_normalization_4d_axis1 rnn_seq_length rotary_embedding
scatter_elements_with_axis scatter_elements_with_reduction_min scatternd_add sigmoid sinh slice softmax_axis_1 softplus
spacetodepth_example split_equal_parts_2d squeeze sum_example tan tile top_k transpose_all_permutations_1 tril
unique_sorted_with_axis where_example xor4d
""".split()  # noqa: SIM905 - a list of this length is read best as text
MOST_REGISTERS = {
    "elementwise": 40,
    "gather": 40,
    "gather_elements": 40,
    "rank": 40,
    "scatter": 48,
    "running": 48,
    "matmul": 64,
    "reduce": 88,
}
"""Kernel → registers of a lane, about one and a half times what it takes. More let fewer lanes run at once."""
ANY_KERNEL = 168
"""Of kernels that the table does not have; with 256 lanes, 255 would be the end."""
MOST_SHARED_BYTES = 48 << 10
"""What a block may have without being asked for more."""
MOST_STACK_BYTES = 64
"""Divisions of 64 bits are calls with a stack of some bytes."""
LEAST_KERNELS, LEAST_OPERATORS = 60, 60
SPILLING = """
extern "C" __global__ __launch_bounds__(1024) void k(float *x) {
  float v[200], s = 0;
  for (int i = 0; i < 200; i++) v[i] = x[i * 7];
  __syncthreads();
  for (int i = 0; i < 200; i++) s += v[i] * x[i];
  x[0] = s;
}
"""


def test_the_compiler_is_there_in_ci():
    assert not os.environ.get("CI") or (nvrtc.LIBRARY and nvrtc.CUOBJDUMP)


@pytest.fixture(scope="module")
def sources():
    """(name, source text) → operators whose cases launch it."""
    launcher = recording_provider.RecordingLauncher(GPU_CLASS, CUDA)
    plugin_manager().register(recording_provider.provider_of(launcher))
    found = {}
    try:
        for case in load_cases("node"):
            if case.name.removeprefix("test_") not in CASES:
                continue
            launcher.launches.clear()
            # Contents are zeros, which are no results, and not what every operator takes.
            with contextlib.suppress(Exception):
                session = ort.InferenceSession(case.model_bytes(), providers=[recording_provider.NAME, "CPUExecutionProvider"])
                for inputs, _ in case.data_sets():
                    run_repeatedly(session, dict(zip(case.feed_names(), inputs, strict=False)))
            for launch in launcher.launches:
                defines = {"HAS_F64": 1, **dict(launch.kernel.defines)}
                found.setdefault((launch.kernel.name, CUDA.source(launch.kernel.text, defines)), set()).add(case.name)
    finally:
        plugin_manager().unregister(recording_provider.NAME)
    return found


def test_faults_are_seen(tmp_path):
    needs = nvrtc.resources(nvrtc.compiled(SPILLING, "sm_90"), tmp_path)["k"]
    assert needs.stack_bytes > MOST_STACK_BYTES or needs.spilled_bytes
    with pytest.raises(nvrtc.CompileError, match="no_such_name"):
        nvrtc.compiled("__device__ int f() { return no_such_name; }", "sm_90")


def test_the_cases_reach_the_kernels(sources):
    assert set(CASES) <= {case.name.removeprefix("test_") for case in load_cases("node")}
    assert len(sources) >= LEAST_KERNELS
    assert len(set().union(*sources.values())) >= LEAST_OPERATORS


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_compile_and_keep_to_their_resources(sources, architecture, tmp_path):
    failures = []
    for (name, text), cases in sources.items():
        try:
            needs = nvrtc.resources(nvrtc.compiled(text, architecture), tmp_path)[name]
        except nvrtc.CompileError as error:
            failures.append(f"{name} of {sorted(cases)}: {str(error)[:500]}")
            continue
        limit = MOST_REGISTERS.get(name, ANY_KERNEL)
        is_sound = needs.registers <= limit and needs.stack_bytes <= MOST_STACK_BYTES and needs.shared_bytes <= MOST_SHARED_BYTES
        if needs.spilled_bytes or not is_sound:
            failures.append(f"{name} of {sorted(cases)}: {needs}, at most {limit} registers, no spills")
    assert not failures, "\n".join(failures)
