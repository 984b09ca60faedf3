"""Values of integer attributes: each has a rule, and what no operator allows is refused before anything computes with it."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, parser

import ort_sdk
from ort_sdk.api import InvalidGraph, find_schema, operator_names, schema_domains, schema_versions
from ort_sdk.api.long_lists import NumberList
from ort_sdk.graph import Graph, Node
from ort_sdk.graph.attribute_rules import check_node_attributes, rule_for
from ort_sdk.kernels import kernel_info
from tests.opset.one_node import make_model, run_reference

INTEGERS = {2, 7}
"""Codes of INT and INTS."""
MICROSOFT = "com.microsoft"


def integer_attributes():
    for domain in schema_domains():
        for op_type in operator_names(domain):
            for version in schema_versions(op_type, domain):
                schema = find_schema(op_type, version, domain)
                for name, code in schema.attribute_types.items():
                    if code in INTEGERS:
                        yield schema, name


def test_every_integer_attribute_of_every_operator_has_a_rule_or_a_reason_for_none():
    missing = {
        (schema.domain, schema.op_type, name)
        for schema, name in integer_attributes()
        if rule_for(schema.op_type, schema.domain, name) is None
    }
    assert not missing, f"give these a rule, or say why they are free, in ort_sdk/graph/attribute_rules.py: {sorted(missing)}"


def test_defaults_of_the_specification_are_allowed():
    for schema, name in integer_attributes():
        default = schema.attribute_defaults.get(name)
        rule = rule_for(schema.op_type, schema.domain, name)
        values = default if isinstance(default, list) else [] if default is None else [default]
        assert all(rule.accepts(value) for value in values), (schema.op_type, name, default)


def session(op_type, inputs, attributes, domain="", opset=21, outputs=1):
    names = [f"x{index}" for index in range(inputs)]
    node = helper.make_node(op_type, names, [f"y{index}" for index in range(outputs)], domain=domain, **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names],
        [helper.make_empty_tensor_value_info(name) for name in node.output],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return ort_sdk.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


FAR = 2**63 - 1
REFUSED = [
    ("Conv", 2, {"dilations": [-900]}, ""),
    ("Conv", 2, {"dilations": [0, 1]}, ""),
    ("Conv", 2, {"strides": [0]}, ""),
    ("Conv", 2, {"strides": [1, FAR]}, ""),
    ("Conv", 2, {"pads": [FAR // 2, 0]}, ""),
    ("Conv", 2, {"pads": [-FAR - 1, 0]}, ""),
    ("Conv", 2, {"group": 0}, ""),
    ("FusedConv", 2, {"dilations": [-1, 1], "activation": "Relu"}, MICROSOFT),
    ("NhwcFusedConv", 2, {"dilations": [-1, 1]}, MICROSOFT),
    ("MaxPool", 1, {"kernel_shape": [3, 3], "strides": [-2, 2], "ceil_mode": 1}, ""),
    ("MaxPool", 1, {"kernel_shape": [3, 3], "pads": [-1, 0, 0, 0]}, ""),
    ("MaxPool", 1, {"kernel_shape": [0, 3]}, ""),
    ("MaxPool", 1, {"kernel_shape": [3, 3], "storage_order": 2}, ""),
    ("AveragePool", 1, {"kernel_shape": [2], "dilations": [-900]}, ""),
    ("LpPool", 1, {"kernel_shape": [2], "p": 0}, ""),
    ("ConvTranspose", 2, {"pads": [-900, -900]}, ""),
    ("ConvTranspose", 2, {"output_padding": [-1]}, ""),
    ("ConvTranspose", 2, {"output_shape": [0]}, ""),
    ("DepthToSpace", 1, {"blocksize": -2}, ""),
    ("SpaceToDepth", 1, {"blocksize": 0}, ""),
    ("LRN", 1, {"size": 0}, ""),
    ("RoiAlign", 3, {"output_height": -1}, ""),
    ("RoiAlign", 3, {"sampling_ratio": -1}, ""),
    ("MaxRoiPool", 2, {"pooled_shape": [0, 1]}, ""),
    ("Split", 1, {"num_outputs": 0}, ""),
    ("GatherND", 2, {"batch_dims": -1}, ""),
    ("Softmax", 1, {"axis": FAR}, ""),
    ("Transpose", 1, {"perm": [FAR, 0]}, ""),
    ("GroupNormalization", 3, {"num_groups": 0}, ""),
    ("LSTM", 3, {"hidden_size": -4}, ""),
    ("Cast", 1, {"to": 99}, ""),
    ("Multinomial", 1, {"sample_size": 0}, ""),
    ("RandomNormal", 0, {"shape": [-1]}, ""),
    ("MRotaryEmbedding", 4, {"mrope_section": [FAR, FAR, 18], "num_heads": 2}, MICROSOFT),
    ("GatherBlockQuantized", 3, {"block_size": 2**62}, MICROSOFT),
    ("GatherBlockQuantized", 3, {"block_size": 48}, MICROSOFT),
    ("MatMulBnb4", 3, {"K": 64, "N": 32, "block_size": 2**62, "quant_type": 1}, MICROSOFT),
    ("MatMulNBits", 3, {"K": 64, "N": 32, "block_size": 24}, MICROSOFT),
    ("MultiHeadAttention", 3, {"num_heads": 0}, MICROSOFT),
    ("GroupQueryAttention", 7, {"num_heads": 4, "kv_num_heads": 0}, MICROSOFT),
    ("GroupQueryAttention", 7, {"num_heads": 4, "kv_num_heads": 2, "local_window_size": -2}, MICROSOFT),
    ("NGramRepeatBlock", 2, {"ngram_size": 0}, MICROSOFT),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes", "domain"), REFUSED)
def test_a_value_that_the_operator_does_not_allow_is_refused_with_the_model(op_type, inputs, attributes, domain):
    with pytest.raises(InvalidGraph, match=r"attribute '.*' (is|does not specify a valid type:) .*; it must be"):
        session(op_type, inputs, attributes, domain)


@pytest.mark.parametrize(
    "attributes",
    [
        {"strides": [1, 1], "dilations": [1]},
        {"kernel_shape": [3, 3], "pads": [1, 1]},
        {"pads": [1, 1, 1]},
        {"kernel_shape": [3], "strides": [1, 2]},
    ],
)
def test_lists_for_spatial_axes_have_one_length(attributes):
    with pytest.raises(InvalidGraph, match="one number per spatial axis"):
        session("Conv", 2, attributes)


def test_pads_are_not_looked_at_where_they_are_computed():
    session("Conv", 2, {"strides": [1, 1], "pads": [1, 1], "auto_pad": "SAME_UPPER"})


def test_attributes_of_a_functions_call_are_looked_at_in_its_nodes():
    model = parser.parse_model("""
        <ir_version: 10, opset_import: ["": 17, "own": 1]>
        g (float[1, 1, n] x, float[1, 1, 2] w) => (float[1, 1, m] y) { y = own.Wide <step = [0]> (x, w) }
        <domain: "own", opset_import: ["": 17]>
        Wide <step> (x, w) => (y) { y = Conv <strides: ints = @step> (x, w) }
    """)
    with pytest.raises(InvalidGraph, match="attribute 'strides' is"):
        ort_sdk.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def test_a_node_that_a_pass_made_is_looked_at_when_its_kernel_is():
    node = Node("MaxPool", ["x"], ["y"], {"kernel_shape": [2], "strides": [-1]}, since_version=12)
    with pytest.raises(InvalidGraph, match="attribute 'strides' is"):
        kernel_info(node, Graph("g"), 17)


def test_attributes_of_unknown_operators_have_no_rules():
    node = Node("Own", ["x"], ["y"], {"axis": 10**6, "strides": [-1], "pads": [1]}, domain="own", since_version=1)
    assert kernel_info(node, Graph("g"), 1).attributes["axis"] == 10**6


@pytest.mark.parametrize("pads", [[-1, -1, 0, 0], [0, 0, -1, -1], [2, 0, -2, 0], [-1, 0, 1, 0], [-2, -2, -1, -1]])
@pytest.mark.parametrize("kernel", [1, 2])
def test_negative_pads_of_a_convolution_cut_its_input(pads, kernel):
    x = np.arange(1, 37, dtype=np.float32).reshape(1, 1, 6, 6)
    w = np.arange(1, 1 + 2 * kernel * kernel, dtype=np.float32).reshape(2, 1, kernel, kernel)
    cut = [max(-pad, 0) for pad in pads]
    left = x[:, :, cut[0] : 6 - cut[2], cut[1] : 6 - cut[3]]
    others = {"opset": 17, "attributes": {"pads": [max(pad, 0) for pad in pads]}}
    (expected,) = run_reference(*make_model("Conv", [left, w], **others))
    for constants in ((), (1,)):
        model, feeds = make_model("Conv", [x, w], opset=17, attributes={"pads": pads}, constants=constants)
        made = ort_sdk.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        for _ in range(4):
            np.testing.assert_array_equal(made.run(None, feeds)[0], expected)


@pytest.mark.parametrize(
    ("op_type", "name", "fine", "wrong"),
    [
        ("Transpose", "perm", 3, 65),
        ("Transpose", "perm", -3, -(2**62)),
        ("TfIdfVectorizer", "ngram_counts", 2**31 - 1, -1),
        ("Scan", "scan_input_directions", 1, 2),
        ("Conv", "kernel_shape", 1, 0),
    ],
)
def test_each_number_of_a_long_list_has_to_be_allowed(op_type, name, fine, wrong):
    numbers = np.full(5000, fine)
    check_node_attributes(Node(op_type, [], [], {name: NumberList(numbers.copy())}))
    numbers[4321] = wrong
    for values in (numbers.tolist(), NumberList(numbers)):
        with pytest.raises(InvalidGraph, match=name):
            check_node_attributes(Node(op_type, [], [], {name: values}))


def test_long_lists_for_axes_have_to_fit_together():
    attributes = {"kernel_shape": NumberList(np.ones(5000, np.int64)), "strides": [1, 1]}
    with pytest.raises(InvalidGraph, match="do not fit together"):
        check_node_attributes(Node("Conv", [], [], attributes))


def test_a_model_with_a_long_list_that_is_not_allowed():
    with pytest.raises(InvalidGraph, match="'perm' is 1000"):
        session("Transpose", 1, {"perm": [0] * 4999 + [1000]})
