"""Models in ORT format for tests: written by onnxruntime, and edited in place."""

from __future__ import annotations

import struct

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from ort_sdk.formats.ort.reader.flatbuffer import FlatBuffer, Table
from ort_sdk.formats.ort.slots import GraphSlot, ModelSlot, SessionSlot

QUIET = 4
ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


def quiet_options(*, level="ORT_DISABLE_ALL"):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = QUIET
    options.intra_op_num_threads = 1  # a pool of threads takes longer to make than such a model to run
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    return options


def convert(model, target, *, level="ORT_DISABLE_ALL"):
    """Let onnxruntime write a model (bytes or path) in ORT format."""
    converting_session(model, target, level=level)
    return target


def converting_session(model, target, *, level="ORT_DISABLE_ALL"):
    """A session of onnxruntime that has written its model in ORT format."""
    options = quiet_options(level=level)
    options.optimized_model_filepath = str(target)
    options.add_session_config_entry("session.save_model_format", "ORT")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run_reference(path, feeds):
    session = onnxruntime.InferenceSession(str(path), quiet_options(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def value(name, shape=("N", 3), kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def small_model():
    """Two nodes, a weight, an If whose branches read outer values, metadata."""
    weight = numpy_helper.from_array(np.arange(9, dtype=np.float32).reshape(3, 3), "w")
    then = helper.make_graph([helper.make_node("Add", ["h", "x"], ["t"], "adds")], "then", [], [value("t")])
    other = helper.make_graph([helper.make_node("Sub", ["h", "x"], ["e"], "subtracts")], "else", [], [value("e")])
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], "multiply"),
        helper.make_node("If", ["flag"], ["y"], "choose", then_branch=then, else_branch=other),
        helper.make_node("Relu", ["y"], ["z"], "rectify"),
    ]
    inputs = [value("x"), value("flag", (), TensorProto.BOOL)]
    graph = helper.make_graph(nodes, "small", inputs, [value("z")], [weight], doc_string="graph words")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="maker")
    model.model_version, model.doc_string = 7, "model words"
    helper.set_model_props(model, {"answer": "42", "empty": ""})
    return model


SMALL_FEEDS = {"x": ARRAY, "flag": np.array(True)}


def small_result():
    product = ARRAY @ np.arange(9, dtype=np.float32).reshape(3, 3)
    return np.maximum(product + ARRAY, 0)


def as_bytes(model):
    onnx.checker.check_model(model)
    return model.SerializeToString()


class Editor:
    """A file's tables, and changes of their bytes."""

    def __init__(self, content):
        self.content = bytearray(content)
        # A copy is read, so that changes do not move what is looked up.
        self.root = FlatBuffer(memoryview(bytes(content))).root(b"ORTM")

    def model(self):
        return self.root.table(SessionSlot.MODEL, "Model")

    def graph(self):
        return self.model().table(ModelSlot.GRAPH, "Graph")

    def nodes(self):
        return self.graph().tables(GraphSlot.NODES, "Node")

    def place(self, table: Table, slot: int) -> int:
        """Position of a field."""
        found = table._field(slot, 1)
        assert found is not None
        return found

    def target(self, at: int) -> int:
        """Position that the offset at a position leads to."""
        return at + struct.unpack_from("<I", self.content, at)[0]

    def set(self, table, slot, form, number):
        struct.pack_into(form, self.content, self.place(table, slot), number)

    def point(self, at: int, target: int):
        """Let the offset at a position lead to another one."""
        assert target > at
        struct.pack_into("<I", self.content, at, target - at)

    def remove(self, table, slot):
        """Take a field from one table, which gets a list of fields of its own, for equal tables share one."""
        fields = self.content[table._vtable : table._vtable + table._vtable_bytes]
        struct.pack_into("<H", fields, 4 + 2 * slot, 0)
        struct.pack_into("<i", self.content, table._at, table._at - len(self.content))
        self.content += fields

    def add_text(self, text: bytes) -> int:
        """A new string at the end, whose position is returned."""
        self.content += bytes(-len(self.content) % 4)
        at = len(self.content)
        self.content += struct.pack("<I", len(text)) + text + b"\0"
        return at

    def vector(self, table, slot) -> int:
        """Position of the length of a vector."""
        return self.target(self.place(table, slot))

    def result(self) -> bytes:
        return bytes(self.content)
