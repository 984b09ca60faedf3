"""Non-maximum suppression in CUDA's dialect: its kernels compile for a GPU, within registers and without spills."""

import sys
from pathlib import Path

import numpy as np
import pytest

from ort_sdk.api import KernelInfo, NodeArg
from ort_sdk.device import CUDA, GPU_CLASS, DeviceContext
from ort_sdk.device.boxes.suppression import non_max_suppression
from ort_sdk.device.namespace.device_namespace import DeviceNamespace

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
MOST_REGISTERS = {"suppress": 64, "kept_rows": 40}


class _Launcher(recording_provider.RecordingLauncher):
    """Everything that is read is one: some boxes are kept."""

    def download(self, memory, array):
        array[...] = 1


@pytest.mark.parametrize("centered", [0, 1])
@pytest.mark.parametrize("bound", [None, np.float32([0.5])])
def test_kernels_compile_within_their_resources(tmp_path, centered, bound):
    launcher = _Launcher(GPU_CLASS, CUDA)
    xp = DeviceNamespace(DeviceContext(launcher))
    arguments = tuple(NodeArg(name, "tensor(float)", None) for name in ("boxes", "scores"))
    info = KernelInfo("NonMaxSuppression", 11, attributes={"center_point_box": centered}, inputs=arguments)
    boxes, scores = (xp.from_host(np.zeros(shape, np.float32)) for shape in ((2, 5000, 4), (2, 3, 5000)))
    found = non_max_suppression(info, xp, None)(boxes, scores, np.array([100]), np.float32([0.5]), bound)
    assert found.shape == (1, 3)
    own = {launch.kernel.name: launch.kernel for launch in launcher.launches if launch.kernel.name in MOST_REGISTERS}
    assert own.keys() == MOST_REGISTERS.keys()
    for name, kernel in own.items():
        text = CUDA.source(kernel.text, {"HAS_F64": 1, **dict(kernel.defines)})
        needs = nvrtc.resources(nvrtc.compiled(text, "sm_90"), tmp_path)[name]
        assert not needs.spilled_bytes, (name, needs)
        assert needs.registers <= MOST_REGISTERS[name], (name, needs)
        assert needs.stack_bytes <= 64, (name, needs)
