"""Jobs that the threads of a task steal: each is done once, in teams of any size, whichever thread is slow."""

import ctypes

import numpy as np
import pytest
from ort_sdk_cpu.conv.arguments.direct import Epilogue, JobCounters
from ort_sdk_cpu.conv.arguments.pointwise import MODULE, Pointwise
from ort_sdk_cpu.conv.packing import pack_panels, panel_width
from ort_sdk_cpu.jit.task import TaskCall
from ort_sdk_cpu.jit.task_code import task_address
from ort_sdk_cpu.kernel.work_stealing import jobs_per_block
from ort_sdk_cpu.onednn import library as onednn_library
from ort_sdk_cpu.platform import libraries

pytestmark = pytest.mark.skipif(
    not onednn_library.is_available() or not libraries.compiled_kernels().is_usable, reason="oneDNN or numba is not installed"
)

PIXELS, CHANNELS, OUTPUTS = 61, 24, 200
FIRST_COUNTER = int(Pointwise.jobs.first)
COUNTERS = [0] * len(JobCounters.fields)
WORK_BYTES = 1 << 16
RUN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


class Pixels:
    """A 1x1 convolution by its task."""

    def __init__(self, blocks, groups, threads):
        rng = np.random.default_rng(3)
        self.x = rng.standard_normal((PIXELS, CHANNELS)).astype(np.float32)
        weight = rng.standard_normal((OUTPUTS, CHANNELS)).astype(np.float32)
        self.out = np.full((PIXELS, OUTPUTS), np.nan, np.float32)
        self.expected = self.x.astype(np.float64) @ weight.T.astype(np.float64)
        self.weights, self.work = pack_panels(weight, OUTPUTS), np.zeros(WORK_BYTES * threads + 64, np.uint8)
        arguments = Pointwise(
            x=self.x,
            weights=self.weights,
            bias=None,
            added=None,
            out=self.out,
            work=self.work,
            pixels=PIXELS,
            channels=CHANNELS,
            blocks=blocks,
            groups=groups,
            outputs=OUTPUTS,
            jobs=JobCounters(),
            work_bytes=WORK_BYTES,
            epilogue=Epilogue(0, 0.0, 0.0, 0, 0, 1.0, 0.0),
        )
        self.call = TaskCall(MODULE, "pointwise", arguments, threads)

    def counters(self):
        return [word for position, word in self.call.words() if 0 <= position - FIRST_COUNTER < len(COUNTERS)]

    def run_in_turn(self, threads):
        """One thread after the other: each finds what those before it left."""
        record, places = np.array([word for _, word in self.call.words()], np.int64), (ctypes.c_void_p * 2)()
        run = RUN(task_address(MODULE, "pointwise"))
        for thread in threads:
            run(ctypes.addressof(places), ctypes.addressof(places) + 8, record.ctypes.data, thread, len(threads))
        return record[FIRST_COUNTER : FIRST_COUNTER + len(COUNTERS)].tolist()

    def check(self):
        np.testing.assert_allclose(self.out, self.expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("blocks", "groups"), [(1, 1), (1, 4), (1, 7), (2, 3), (5, 1), (61, 2)])
@pytest.mark.parametrize("threads", [1, 2, 3, 7, 8, 19])
def test_every_job_is_done_whoever_comes_first(blocks, groups, threads):
    assert OUTPUTS % panel_width()
    for order in (range(threads), reversed(range(threads))):
        convolution = Pixels(blocks, groups, threads)
        assert convolution.run_in_turn(list(order)) == COUNTERS
        convolution.check()


@pytest.mark.parametrize("threads", [2, 3, 9])
def test_teams_find_the_counts_as_they_were(threads):
    convolution = Pixels(5, 3, threads)
    for _ in range(50):
        convolution.out.fill(np.nan)
        convolution.call.run()
        assert convolution.counters() == COUNTERS
        convolution.check()


def test_work_is_cut_into_several_jobs_for_each_thread():
    assert jobs_per_block(1, 1) == 1
    assert [jobs_per_block(blocks, 2) for blocks in (1, 2, 5, 12, 40)] == [12, 6, 3, 1, 1]
