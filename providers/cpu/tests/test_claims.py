"""Jobs that the parts of a task take as they come to them: each once, in teams of any size, whichever part is slow."""

import ctypes

import numpy as np
import pytest
from ort_sdk_cpu.conv.packing import pack_panels, panel_width
from ort_sdk_cpu.jit.task import TaskCall, task_address
from ort_sdk_cpu.kernel.work_stealing import CLAIMS, groups_for
from ort_sdk_cpu.onednn import library as onednn_library
from ort_sdk_cpu.platform import libraries

pytestmark = pytest.mark.skipif(
    not onednn_library.is_available() or not libraries.numba().is_usable, reason="oneDNN or numba is not installed"
)

PIXELS, CHANNELS, OUTPUTS = 61, 24, 200
FIRST_CLAIM = 11
WORK_BYTES = 1 << 16
RUN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


class Product:
    """Pixels times weights, as the task of convolutions of one tap computes them."""

    def __init__(self, blocks, groups, parts):
        rng = np.random.default_rng(3)
        self.x = rng.standard_normal((PIXELS, CHANNELS)).astype(np.float32)
        weight = rng.standard_normal((OUTPUTS, CHANNELS)).astype(np.float32)
        self.out = np.full((PIXELS, OUTPUTS), np.nan, np.float32)
        self.expected = self.x.astype(np.float64) @ weight.T.astype(np.float64)
        self.weights, self.work = pack_panels(weight, OUTPUTS), np.zeros(WORK_BYTES * parts + 64, np.uint8)
        sizes = (PIXELS, CHANNELS, blocks, groups, OUTPUTS, *CLAIMS, WORK_BYTES)
        self.call = TaskCall("pointwise", "pointwise", (*(0,) * 6, *sizes, 0, 0.0, 0.0, 0, 0, 1.0, 0.0), parts)
        for position, array in ((0, self.x), (1, self.weights), (4, self.out), (5, self.work)):
            self.call.point(position, array)

    def claims(self):
        return [word for position, word in self.call.words() if FIRST_CLAIM <= position < FIRST_CLAIM + len(CLAIMS)]

    def run_in_turn(self, parts):
        """One part after the other: each finds what those before it left."""
        record, places = np.array([word for _, word in self.call.words()], np.int64), (ctypes.c_void_p * 2)()
        run = RUN(task_address("pointwise", "pointwise"))
        for part in parts:
            run(ctypes.addressof(places), ctypes.addressof(places) + 8, record.ctypes.data, part, len(parts))
        return record[FIRST_CLAIM : FIRST_CLAIM + len(CLAIMS)].tolist()

    def check(self):
        np.testing.assert_allclose(self.out, self.expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("blocks", "groups"), [(1, 1), (1, 4), (1, 7), (2, 3), (5, 1), (61, 2)])
@pytest.mark.parametrize("parts", [1, 2, 3, 7, 8, 19])
def test_every_job_is_done_whoever_comes_first(blocks, groups, parts):
    assert OUTPUTS % panel_width()
    for order in (range(parts), reversed(range(parts))):
        product = Product(blocks, groups, parts)
        assert product.run_in_turn(list(order)) == list(CLAIMS)
        product.check()


@pytest.mark.parametrize("parts", [2, 3, 9])
def test_teams_find_the_counts_as_they_were(parts):
    product = Product(5, 3, parts)
    for _ in range(50):
        product.out.fill(np.nan)
        product.call.run()
        assert product.claims() == list(CLAIMS)
        product.check()


def test_work_is_cut_into_several_jobs_for_each_thread():
    assert groups_for(1, 1) == 1
    assert [groups_for(blocks, 2) for blocks in (1, 2, 5, 12, 40)] == [12, 6, 3, 1, 1]
