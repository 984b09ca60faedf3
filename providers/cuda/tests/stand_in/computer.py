"""The OpenCL device that computes kernels."""

import ctypes
import re
import warnings

import numpy as np
import pyopencl as cl

SIZES = {
    "i32": ctypes.c_int32,
    "u32": ctypes.c_uint32,
    "i64": ctypes.c_int64,
    "u64": ctypes.c_uint64,
    "f32": ctypes.c_float,
    "f64": ctypes.c_double,
}
NAMES = {"int": "i32", "uint": "u32", "long": "i64", "ulong": "u64", "float": "f32", "double": "f64"}


class Computer:
    """PoCL's device, or the first there is: its work-groups are a GPU's blocks."""

    def __init__(self):
        platforms = sorted(cl.get_platforms(), key=lambda each: "Portable" not in each.name)
        self.device = platforms[0].get_devices()[0]
        self.context = cl.Context([self.device])
        self.queue = cl.CommandQueue(self.context)
        self.alignment_bytes = self.device.mem_base_addr_align // 8
        self._programs = {}

    def program(self, text):
        """A built program, each text once."""
        if text not in self._programs:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                program = cl.Program(self.context, text)
                program.get_info(cl.program_info.REFERENCE_COUNT)
                self._programs[text] = program.build(["-cl-kernel-arg-info"])
        return self._programs[text]

    def buffer(self, memory):
        """A buffer in memory of the host."""
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
        return cl.Buffer(self.context, flags, hostbuf=memory)

    def finish(self):
        self.queue.finish()


class Kernel:
    """A kernel and the types of its arguments: None for an address."""

    def __init__(self, computer, program, name):
        self.name, self._computer = name, computer
        self._text = program.get_info(cl.program_info.SOURCE)
        self._kernel = cl.Kernel(program, name)
        self.types = [self._type(position) for position in range(self._kernel.num_args)]
        self._kernel.set_scalar_arg_dtypes([None if each is None else np.dtype(each) for each in self.types])

    def _type(self, position):
        information = cl.kernel_arg_info
        if self._kernel.get_arg_info(position, information.ADDRESS_QUALIFIER) == cl.kernel_arg_address_qualifier.GLOBAL:
            return None
        name = self._kernel.get_arg_info(position, information.TYPE_NAME)
        if name == "index_t":
            name = "i64" if re.search(r"^#define INDEX64\b", self._text, re.MULTILINE) else "i32"
        return SIZES[NAMES.get(name, name)]

    def values(self, parameters):
        """The arguments as they are now in the cells that an array of addresses names."""
        addresses = (ctypes.c_uint64 * len(self.types)).from_address(parameters)
        return [
            (ctypes.c_uint64 if kind is None else kind).from_address(address).value
            for kind, address in zip(self.types, addresses, strict=True)
        ]

    def run(self, groups, lanes, values, buffer_at):
        """Queue it."""
        arguments = [buffer_at(value) if kind is None else value for kind, value in zip(self.types, values, strict=True)]
        self._kernel.set_args(*arguments)
        size = tuple(count * own for count, own in zip(groups, lanes, strict=True))
        cl.enqueue_nd_range_kernel(self._computer.queue, self._kernel, size, lanes)
