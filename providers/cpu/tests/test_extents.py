"""What compiled tasks declare that they touch: complete, checked where they are bound and called, and true."""

import functools
import importlib
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import ort_sdk_cpu
import pytest
from ort_sdk_cpu.jit.extents import declaration
from ort_sdk_cpu.jit.extents.declaration import declaration_of
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import has_amx, instruction_set

from ort_sdk.api import ExtentError

from .task_guards import pointed, touched

needs_numba = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason="numba cannot be used")

HERE = Path(__file__).parent
LAUNCHES = json.loads((HERE / "data" / "task_launches.json").read_text())
"""Task → launches that kernels made: [threads, arguments], and what addresses have that others depend on, if that matters."""
OF_ONE_SET = frozenset(LAUNCHES["of one instruction set"])
"""Tasks whose arguments depend on the instruction set that the launches were made for."""
RAN_ON = LAUNCHES["instruction set"]

ON_MATRIX_UNIT = ("gemm.nbits.activations.round_bf16", "gemm.nbits.gemm_amx.")
"""Tasks that not every processor can run."""
WITHOUT_LAUNCHES = "quantized.conv.amx."
"""The same; there are no launches of them."""


zeros = functools.partial(np.zeros, dtype=np.uint8)


def compiled_modules():
    package = Path(ort_sdk_cpu.__file__).parent
    return [".".join(file.relative_to(package).with_suffix("").parts) for file in sorted(package.rglob("compiled/[a-z]*.py"))]


def all_tasks():
    from ort_sdk_cpu.jit.task_code import Task

    for path in compiled_modules():
        made = vars(importlib.import_module(f"ort_sdk_cpu.{path}")).items()
        for name, value in made:
            if isinstance(value, Task):
                yield path.replace(".compiled.", "."), name


def launches_of(task):
    usable = task not in OF_ONE_SET or instruction_set().name == RAN_ON
    usable = usable and (has_amx() or not task.startswith(ON_MATRIX_UNIT))
    return [[task, *launch] for launch in LAUNCHES["launches"][task]] if usable else []


@needs_numba
def test_all_tasks_declare_what_they_touch():
    missing = {f"{module}.{name}" for module, name in all_tasks() if declaration_of(module, name) is None}
    assert not missing


@needs_numba
def test_all_declared_tasks_have_launches():
    declared = {f"{module}.{name}" for module, name in all_tasks() if declaration_of(module, name) is not None}
    assert {task for task in declared if not task.startswith(WITHOUT_LAUNCHES)} == set(LAUNCHES["launches"])


@needs_numba
@pytest.mark.parametrize("module", sorted({task.rpartition(".")[0] for task in LAUNCHES["launches"]}))
def test_tasks_stay_within_what_they_declare(module):
    launches = [each for task in LAUNCHES["launches"] if task.startswith(f"{module}.") for each in launches_of(task)]
    script = f"import sys; sys.path.insert(0, {str(HERE)!r}); import task_guards; task_guards.main()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], input=json.dumps(launches), capture_output=True, text=True, timeout=600, check=False
    )
    assert done.stdout.splitlines()[-1:] == ["done"], (done.stdout[-500:], done.stderr[-2000:])


@needs_numba
@pytest.mark.parametrize("task", sorted(LAUNCHES["launches"]))
def test_one_byte_less_is_refused(task):
    module, _, name = task.rpartition(".")
    for _, parts, words, *_ in launches_of(task):
        pointed(module, name, words, parts, zeros).check()
        for extent in touched(module, name, words, parts):
            with pytest.raises(ExtentError, match=rf"{task} .* at its argument"):
                pointed(module, name, words, parts, zeros, less=extent.position).check()


@needs_numba
def test_what_is_unknown_none_or_read_only_is_refused():
    from ort_sdk_cpu.jit.task import TaskCall

    x, out = np.zeros((2, 8), np.float32), np.zeros((2, 8), np.float32)
    with pytest.raises(ExtentError, match="is not known"):
        TaskCall("normalization.rows", "softmax", (x.ctypes.data, out, 2, 8)).bound_call()
    with pytest.raises(ExtentError, match="its address is 0"):
        TaskCall("normalization.rows", "softmax", (0, out, 2, 8)).run()
    out.flags.writeable = False
    with pytest.raises(ExtentError, match="read-only"):
        TaskCall("normalization.rows", "softmax", (x, out, 2, 8)).run()


@needs_numba
def test_calls_look_at_other_arrays_and_sizes_again():
    from ort_sdk_cpu.jit.task import TaskCall

    x, out = np.zeros((2, 8), np.float32), np.zeros((2, 8), np.float32)
    call = TaskCall("normalization.rows", "softmax", (x, out, 2, 8))
    call.run()
    assert np.all(out == 1 / 8)
    with pytest.raises(ExtentError, match=r"64 bytes .* 'x', but there are 60"):
        call.point(0, x.reshape(-1)[:-1])
    call.point(0, x)
    call.set(2, 3)
    with pytest.raises(ExtentError, match="96 bytes"):
        call.run()


@needs_numba
def test_functions_look_at_every_call():
    from ort_sdk_cpu.jit.task import TaskFunction

    function = TaskFunction("normalization.rows", "softmax")
    x, out = np.zeros((2, 8), np.float32), np.zeros((2, 8), np.float32)
    function(1, x, out, 2, 8)
    assert np.all(out == 1 / 8)
    for wrong in (x[:1], np.broadcast_to(np.float32(0), (2, 8)), None, np.zeros((2, 8), np.float16)):
        with pytest.raises(ExtentError, match="'x'"):
            function(1, wrong, out, 2, 8)
    with pytest.raises(ExtentError, match="'out'"):
        function(1, x, np.broadcast_to(np.float32(0), (2, 8)), 2, 8)


@needs_numba
def test_steps_count_from_the_array_that_is_given():
    from ort_sdk_cpu.kernel.layouts.strided_copy import strided_copy

    source, target = np.arange(12, dtype=np.float32).reshape(3, 4), np.zeros((3, 4), np.float32)
    backwards = source[::-1]
    call = strided_copy(target.shape, target.strides, backwards.strides, 4)
    call.point(0, target)
    call.point(1, backwards)
    call.run()
    np.testing.assert_array_equal(target, source[::-1])
    with pytest.raises(ExtentError, match="32 before"):
        call.point(1, source)


@needs_numba
def test_chains_stay_within_arrays():
    from ort_sdk_cpu.fusion.elementwise.extents import declaration_of_chain
    from ort_sdk_cpu.jit.task import TaskCall

    class Chain:
        inputs, output_types = "ff", "f"

    declaration, (x, row, out) = declaration_of_chain(Chain), [np.zeros(size, np.float32) for size in (24, 6, 24)]
    header, operands = (4, 6, 4096, 1, 1, 1, 4), ((0, 0, 0, 24, 4), (0, 0, 0, 0, 4), (0, 0, 0, 24, 4))

    def made(arrays):
        words = (word for array, steps in zip(arrays, operands, strict=True) for word in (array, *steps))
        return TaskCall.at(0, (*header, *words), 1, declaration)

    made((x, row, out)).check()
    for wrong, name in (((x[1:], row, out), "input 0"), ((x, row[:5], out), "input 1"), ((x, row, out[:23]), "output 0")):
        with pytest.raises(ExtentError, match=name):
            made(wrong).check()


@needs_numba
@pytest.mark.parametrize("place", ["x", "out", "weight"])
def test_sequences_stay_within_arrays(place):
    from ort_sdk_cpu.fusion.transformer.bounds import LaunchedTask, Span, check_tasks

    rows, width = 3, 20
    spans = {"x": Span(4096, 4096 + 240, False), "out": Span(8192, 8192 + 240, True), "weight": Span(16384, 16384 + 80, False)}
    task = LaunchedTask("normalization.rows", "layer_normalization", [4096, 0, 0, 0, 8192, 16384, 0, rows, width, 0])
    check_tasks([task], 1, list(spans.values()))
    short = spans | {place: spans[place]._replace(high=spans[place].high - 1)}
    with pytest.raises(ExtentError, match=r"rows\.layer_normalization"):
        check_tasks([task], 1, list(short.values()))
    del short[place]
    with pytest.raises(ExtentError, match="the memory there is not known"):
        check_tasks([task], 1, list(short.values()))


@needs_numba
def test_single_bytes_are_written_alone():
    from ort_sdk_cpu.jit.task import TaskCall

    x, out, scale = np.linspace(-1, 2, 40, dtype=np.float32), np.zeros(40, np.uint8), np.zeros(1, np.float32)
    zero_point = np.full(8, 77, np.uint8)
    TaskCall("quantized.dynamic", "dynamic_quantize", (x, out, scale, zero_point[:1], x.size)).run()
    assert zero_point.tolist() == [85, *[77] * 7]
    pixels, means = np.arange(15, dtype=np.uint8).reshape(1, 3, 5), np.full(11, 77, np.uint8)
    numbers = (1, 3, 5, 1, 5, 0, 0.0, 1.0, 0.0, 1.0, 0.0, 255.0)
    TaskCall("quantized.elementwise", "global_average_pool", (pixels, means[:3], *numbers)).run()
    assert means.tolist() == [2, 7, 12, *[77] * 8]


def test_threads_wait_for_declarations_that_are_being_imported(tmp_path, monkeypatch):
    family = tmp_path / "slow_family" / "arguments"
    family.mkdir(parents=True)
    (family / "slow.py").write_text(
        "from __future__ import annotations\n"
        "import time\n"
        "from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments\n"
        "from ort_sdk_cpu.jit.extents.declaration import reads\n"
        "time.sleep(0.5)\n"
        "class Slow(TaskArguments, module='slow_family.slow', tasks=('task',)):\n"
        "    x: Pointer\n"
        "    size: int\n"
        "    def extents(self):\n"
        "        yield reads(self.x, self.size)\n"
    )
    monkeypatch.setattr(ort_sdk_cpu, "__path__", [*ort_sdk_cpu.__path__, str(tmp_path)])
    try:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: declaration.declaration_of("slow_family.slow", "task"), range(8)))
        assert None not in found
        assert declaration.declaration_of("slow_family.slow", "other") is None
    finally:
        for name in [each for each in sys.modules if each.startswith("ort_sdk_cpu.slow_family")]:
            del sys.modules[name]
        declaration._declared.pop(("slow_family.slow", "task"), None)
        declaration._imported.discard("slow_family.slow")
