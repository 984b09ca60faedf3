"""The way from a node to machine code: which modules of the CPU provider one passes, printed for some operators.

    python -P tools/trace_hops.py [OPERATOR ...]

For each operator, a model of one node is run. Two call stacks are recorded: the one in which the object is made that computes
the node, while the session is, and the last one in which the operator's family gets a task's machine code: in the program that
replays further runs. What both pass in the provider, module by module, is the way a reader of the sources has to go, from the
registry on; a step from one module to another is a hop.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import ort_sdk

PROVIDER = "ort_sdk_cpu."
MOST_HOPS = 6
FAMILIES = {"Conv": "conv.", "MatMul": "gemm.", "MultiHeadAttention": "attention.", "LSTM": "rnn."}
RUNS = 3
"""A program is compiled in the second."""

Stack = list[str]


def model_of(op_type: str) -> tuple[bytes, dict[str, Any]]:
    """A model of one node with constant weights, and feeds for it."""
    rng = np.random.default_rng(0)

    def floats(*shape: int) -> Any:
        return rng.standard_normal(shape, np.float32)

    x, weights, attributes, domain = _NODES[op_type](floats)
    names = [name for name, value in (("x", x), *weights.items()) if value is not None]
    arguments = ["x", *[name if value is not None else "" for name, value in weights.items()]]
    node = helper.make_node(op_type, arguments, ["y"], domain=domain, **attributes)
    graph = helper.make_graph(
        [node],
        "one_node",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items() if name in names],
    )
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString(), {"x": x}


def _conv(floats: Any) -> Any:
    return floats(1, 32, 28, 28), {"w": floats(64, 32, 3, 3), "b": floats(64)}, {"pads": [1, 1, 1, 1]}, ""


def _matmul(floats: Any) -> Any:
    return floats(128, 256), {"w": floats(256, 256)}, {}, ""


def _attention(floats: Any) -> Any:
    weights = {"k": floats(1, 128, 256), "v": floats(1, 128, 256)}
    return floats(1, 128, 256), weights, {"num_heads": 4}, "com.microsoft"


def _lstm(floats: Any) -> Any:
    weights = {"w": floats(1, 512, 64), "r": floats(1, 512, 128), "b": floats(1, 1024)}
    return floats(16, 1, 64), weights, {"hidden_size": 128}, ""


_NODES = {"Conv": _conv, "MatMul": _matmul, "MultiHeadAttention": _attention, "LSTM": _lstm}


def _modules(frame: FrameType | None) -> Iterator[str]:
    """Modules of the frames that call each other, innermost first; none above one that is being imported."""
    while frame is not None and frame.f_code.co_name != "<module>":
        yield frame.f_globals.get("__name__", "")
        frame = frame.f_back


def _stack(frame: FrameType) -> Stack:
    """Modules of the provider on the stack, outermost first, each named once for calls in a row."""
    own = [name.removeprefix(PROVIDER) for name in _modules(frame) if name.startswith(PROVIDER)][::-1]
    return [name for index, name in enumerate(own) if not index or own[index - 1] != name]


class Recorder:
    """Call stacks of one session: those in which objects are made while it is, and the one in which machine code is asked for.

    Args:
        family: package of the operator's kernels, with a dot behind it.
    """

    def __init__(self, family: str) -> None:
        self._family = family
        self.is_created = False
        self.created: dict[str, Stack] = {}
        """Module of an object's class → the stack in which the first of them was made."""
        self.launched: Stack = []

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        """A profile function."""
        if event != "call":
            return
        name, function = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        if name == f"{PROVIDER}jit.task_code" and function == "address" and self.is_created:
            stack = _stack(frame)
            first = next(index for index, module in enumerate(stack) if module.startswith("jit."))
            if stack[first - 1].startswith(self._family):
                self.launched = stack[: first + 1]
        elif not self.is_created and function == "__init__" and name.startswith(PROVIDER) and "self" in frame.f_locals:
            module = type(frame.f_locals["self"]).__module__.removeprefix(PROVIDER)
            self.created.setdefault(module, _stack(frame))


def way(op_type: str) -> Stack:
    """The modules to read, in order, each once."""
    model, feeds = model_of(op_type)
    recorder = Recorder(FAMILIES[op_type])
    sys.setprofile(recorder)
    try:
        session = ort_sdk.InferenceSession(model, providers=["CPUExecutionProvider"])
        recorder.is_created = True
        for _ in range(RUNS):
            session.run(None, feeds)
    finally:
        sys.setprofile(None)
    made = next((recorder.created[module] for module in recorder.launched if module in recorder.created), [])
    return list(dict.fromkeys(["registry", *made, *recorder.launched]))


def main(operators: list[str]) -> int:
    """Print the way of each operator; 1 if one has too many hops."""
    longest = 0
    for op_type in operators or list(_NODES):
        modules = way(op_type)
        longest = max(longest, len(modules) - 1)
        print(f"{op_type}: {len(modules) - 1} hops")
        print("  " + " -> ".join(modules))
    return int(longest > MOST_HOPS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
