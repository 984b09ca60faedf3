"""Compiled kernels on aarch64: the portable level's code has no instruction of x86's in it, and makes machine code for ARM.

What is not shown here is that this code computes the same there. Its source is the portable level's, which the whole suite may be
run at on x86.
"""

import os
import subprocess
import sys

import pytest
from ort_sdk_cpu.platform import libraries

pytestmark = [pytest.mark.instruction_sets, pytest.mark.skipif(not libraries.numba().is_usable, reason=str(libraries.numba()))]

SHARES = 4

CROSS_COMPILE = """
import importlib, re, sys
from pathlib import Path
import llvmlite.binding as llvm
import ort_sdk_cpu
from ort_sdk_cpu.jit.llvm import load_openmp_symbols
from ort_sdk_cpu.jit.numba_frontend import translate
from ort_sdk_cpu.jit.task_code import Task

load_openmp_symbols()
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
target = llvm.Target.from_triple("aarch64-unknown-linux-gnu").create_target_machine(cpu="generic", opt=2, reloc="pic")
package = Path(ort_sdk_cpu.__file__).parent
paths = [".".join(file.relative_to(package).with_suffix("").parts) for file in sorted(package.rglob("compiled/[a-z]*.py"))]
modules = {path.replace(".compiled.", "."): path for path in paths}
names = sorted(modules)
first, shares, *left_out = sys.argv[1:]
count = 0
for name in names[int(first)::int(shares)]:
    if name in left_out:
        continue
    values = vars(importlib.import_module(f"ort_sdk_cpu.{modules[name]}")).values()
    for task in [value for value in values if isinstance(value, Task)][:1]:
        _, text = translate(task.function, task.signature)
        assert "llvm.x86" not in text, (name, task.name, sorted(set(re.findall(r"llvm[.]x86[.][a-z0-9.]+", text))))
        text = re.sub(r'target triple = ".*"', f'target triple = "{target.triple}"', text)
        text = re.sub(r'target datalayout = ".*"', f'target datalayout = "{target.target_data}"', text)
        code = target.emit_object(llvm.parse_assembly(text))
        # ELF's field for the machine: 183 is AArch64
        assert code[:4] == b"\\x7fELF" and int.from_bytes(code[18:20], "little") == 183
        count += 1
print(count)
"""

OF_AMX = ("gemm.nbits.gemm_amx", "quantized.conv.amx")
"""Modules whose tasks are chosen only where there is AMX."""


@pytest.mark.parametrize("share", range(SHARES))
def test_portable_kernels_are_code_for_aarch64(share):
    command = [sys.executable, "-P", "-c", CROSS_COMPILE, str(share), str(SHARES), *OF_AMX]
    done = subprocess.run(command, env=os.environ | {"ORT_SDK_CPU_ISA": "portable"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0
