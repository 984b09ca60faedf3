"""Seeded mutations of models: what broken exporters, careless editors and attackers make of them."""

import itertools

from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, helper

HUGE = (2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1)
ODD_INTEGERS = (-(2**63), -(2**31), -100, -2, -1, 0, 1, 2, 3, 7, 64, 1000, *HUGE)
ODD_FLOATS = (0.0, -1.0, 1e-30, 1e30, float("inf"), float("-inf"), float("nan"))
ODD_TEXTS = ("", "x", "NOTSET", "SAME_UPPER", "linear", "\x00", "ü" * 20, "a" * 5000, "constant", "sum")
DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "no.such.domain", "ai.onnx.preview.training", "ü")
ELEMENT_TYPES = tuple(value for name, value in TensorProto.DataType.items())


def graphs_of(model):
    """The main graph and all bodies."""
    found = [model.graph]
    for graph in found:
        for node in graph.node:
            for attribute in node.attribute:
                found += [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs
    return found


def _value_names(graph):
    named = (*graph.input, *graph.initializer)
    return [*(each.name for each in named), *itertools.chain.from_iterable(node.output for node in graph.node), ""]


def _some_graph(model, rng):
    return rng.choice(graphs_of(model))


def _some_node(model, rng):
    nodes = [node for graph in graphs_of(model) for node in graph.node]
    return rng.choice(nodes) if nodes else model.graph.node.add(op_type="Identity")


def drop_node(model, rng):
    graph = _some_graph(model, rng)
    if graph.node:
        del graph.node[rng.randrange(len(graph.node))]


def duplicate_node(model, rng):
    graph = _some_graph(model, rng)
    if graph.node:
        copy = graph.node.add()
        copy.CopyFrom(rng.choice(graph.node))
        if rng.random() < 0.5:
            copy.output[:] = [f"{name}_again" for name in copy.output]


def shuffle_nodes(model, rng):
    graph = _some_graph(model, rng)
    nodes = list(graph.node)
    rng.shuffle(nodes)
    copies = GraphProto(node=nodes)
    del graph.node[:]
    graph.node.extend(copies.node)


def rename_op(model, rng):
    known = [node.op_type for graph in graphs_of(model) for node in graph.node]
    others = (
        "If",
        "Loop",
        "Scan",
        "Reshape",
        "Concat",
        "Cast",
        "Gemm",
        "Conv",
        "Shape",
        "ConstantOfShape",
        "Split",
        "NoSuch",
        "",
    )
    _some_node(model, rng).op_type = rng.choice([*known, *others])


def change_domain(model, rng):
    _some_node(model, rng).domain = rng.choice(DOMAINS)


def rewire_input(model, rng):
    graph = _some_graph(model, rng)
    readers = [node for node in graph.node if node.input]
    if readers:
        node = rng.choice(readers)
        node.input[rng.randrange(len(node.input))] = rng.choice([*_value_names(graph), "nowhere"])


def swap_inputs(model, rng):
    node = _some_node(model, rng)
    names = list(node.input)
    rng.shuffle(names)
    node.input[:] = names


def change_input_count(model, rng):
    node = _some_node(model, rng)
    names = _value_names(model.graph)
    choice = rng.random()
    if choice < 0.4 and node.input:
        del node.input[-1]
    elif choice < 0.8:
        node.input.append(rng.choice(names))
    else:
        node.input.extend([""] * rng.choice((1, 5, 300)))


def change_outputs(model, rng):
    node = _some_node(model, rng)
    choice = rng.random()
    if choice < 0.3 and node.output:
        del node.output[-1]
    elif choice < 0.6:
        node.output.append(rng.choice(["extra", "", *_value_names(model.graph)]))
    elif node.output:
        node.output[rng.randrange(len(node.output))] = rng.choice(["other", "", *_value_names(model.graph)])


def drop_attribute(model, rng):
    node = _some_node(model, rng)
    if node.attribute:
        del node.attribute[rng.randrange(len(node.attribute))]


def _odd_value(rng):
    return rng.choice(
        (
            rng.choice(ODD_INTEGERS),
            rng.choice(ODD_FLOATS),
            rng.choice(ODD_TEXTS),
            [rng.choice(ODD_INTEGERS) for _ in range(rng.choice((1, 2, 4, 9)))],
            [rng.choice(ODD_FLOATS) for _ in range(rng.choice((1, 3)))],
            [rng.choice(ODD_TEXTS) for _ in range(2)],
            helper.make_tensor("t", TensorProto.FLOAT, [2], [1.0, 2.0]),
            helper.make_tensor("t", TensorProto.INT64, [], [rng.choice(ODD_INTEGERS)]),
            helper.make_graph([], "empty", [], []),
        )
    )


def retype_attribute(model, rng):
    """Another type and value under the same name."""
    node = _some_node(model, rng)
    if node.attribute:
        attribute = rng.choice(node.attribute)
        attribute.CopyFrom(helper.make_attribute(attribute.name, _odd_value(rng)))


def empty_attribute(model, rng):
    """The same type with nothing in it."""
    node = _some_node(model, rng)
    if node.attribute:
        attribute = rng.choice(node.attribute)
        attribute.CopyFrom(AttributeProto(name=attribute.name, type=attribute.type))


def odd_number_in_attribute(model, rng):
    node = _some_node(model, rng)
    if not node.attribute:
        return
    attribute = rng.choice(node.attribute)
    if attribute.type == AttributeProto.INT:
        attribute.i = rng.choice(ODD_INTEGERS)
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = rng.choice(ODD_FLOATS)
    elif attribute.type == AttributeProto.STRING:
        attribute.s = rng.choice(ODD_TEXTS).encode()
    elif attribute.type == AttributeProto.INTS:
        if attribute.ints and rng.random() < 0.7:
            attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(ODD_INTEGERS)
        else:
            attribute.ints.append(rng.choice(ODD_INTEGERS))
    elif attribute.type == AttributeProto.TENSOR:
        _spoil_tensor(attribute.t, rng)


def add_attribute(model, rng):
    names = ("axis", "axes", "to", "value", "body", "perm", "keepdims", "mode", "group", "pads", "strides", "nonsense")
    _some_node(model, rng).attribute.append(helper.make_attribute(rng.choice(names), _odd_value(rng)))


def refer_to_attribute(model, rng):
    """A reference that only a function's nodes may have."""
    node = _some_node(model, rng)
    if node.attribute:
        rng.choice(node.attribute).ref_attr_name = rng.choice(("alpha", "", "axis"))


def _spoil_tensor(tensor, rng):
    choice = rng.random()
    if choice < 0.3:
        if tensor.dims:
            tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(ODD_INTEGERS)
        else:
            tensor.dims.append(rng.choice(ODD_INTEGERS))
    elif choice < 0.5:
        tensor.data_type = rng.choice(ELEMENT_TYPES)
    elif choice < 0.7:
        tensor.raw_data = bytes(rng.randrange(256) for _ in range(rng.choice((0, 1, 8, len(tensor.raw_data)))))
    elif choice < 0.8:
        del tensor.dims[:]
    elif choice < 0.9:
        tensor.data_location = TensorProto.EXTERNAL
        location = rng.choice(("../../etc/passwd", "/etc/passwd", "missing.bin", "", ".", "a\x00b"))
        for key, value in (("location", location), ("offset", str(rng.choice(ODD_INTEGERS))), ("length", "8")):
            tensor.external_data.add(key=key, value=value)
    else:
        tensor.int64_data.extend([rng.choice(ODD_INTEGERS)])


def spoil_initializer(model, rng):
    graph = _some_graph(model, rng)
    if graph.initializer:
        _spoil_tensor(rng.choice(graph.initializer), rng)


def add_initializer(model, rng):
    """A constant in place of some value: everything after it can be folded."""
    graph = _some_graph(model, rng)
    name = rng.choice(_value_names(graph))
    shape = rng.choice(((), (0,), (1,), (2,), (4,), (2, 3)))
    count = int(bool(shape == ())) or shape[0] * (shape[1] if len(shape) > 1 else 1)
    kind = rng.choice((TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL))
    graph.initializer.append(helper.make_tensor(name, kind, shape, [rng.choice((-1, 0, 1, 2, 3, 2**31)) for _ in range(count)]))


def make_input_constant(model, rng):
    """An input becomes a constant of the declared type: hostile sizes meet folding and shape inference."""
    graph = model.graph
    if not graph.input:
        return
    position = rng.randrange(len(graph.input))
    value = graph.input[position]
    tensor_type = value.type.tensor_type
    sizes = [each.dim_value if 0 < each.dim_value < 50 else 2 for each in tensor_type.shape.dim]
    count = 1
    for size in sizes:
        count *= size
    if tensor_type.elem_type not in {TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL} or count > 5000:
        return
    choices = (0, 1) if tensor_type.elem_type == TensorProto.BOOL else (-1, 0, 1, 2, 3, 5, 2**20, 2**31 - 1)
    values = [rng.choice(choices) for _ in range(count)]
    graph.initializer.append(helper.make_tensor(value.name, tensor_type.elem_type, sizes, values))
    del graph.input[position]


def change_declared_shape(model, rng):
    graph = _some_graph(model, rng)
    values = [*graph.input, *graph.output, *graph.value_info]
    if not values:
        return
    shape = rng.choice(values).type.tensor_type.shape
    choice = rng.random()
    if choice < 0.3 and shape.dim:
        del shape.dim[rng.randrange(len(shape.dim))]
    elif choice < 0.5 or not shape.dim:
        shape.dim.add(dim_value=rng.choice(ODD_INTEGERS))
    elif choice < 0.8:
        rng.choice(shape.dim).dim_value = rng.choice(ODD_INTEGERS)
    else:
        rng.choice(shape.dim).dim_param = rng.choice(("n", "", "a+b", "é"))


def change_declared_type(model, rng):
    graph = _some_graph(model, rng)
    values = [*graph.input, *graph.output, *graph.value_info]
    if not values:
        return
    value = rng.choice(values)
    choice = rng.random()
    if choice < 0.6:
        value.type.tensor_type.elem_type = rng.choice(ELEMENT_TYPES)
    elif choice < 0.8:
        inner = helper.make_tensor_type_proto(rng.choice(ELEMENT_TYPES), None)
        value.type.CopyFrom(rng.choice((helper.make_sequence_type_proto, helper.make_optional_type_proto))(inner))
    else:
        value.ClearField("type")


def rename_value(model, rng):
    graph = _some_graph(model, rng)
    values = [*graph.input, *graph.output, *graph.value_info, *graph.initializer]
    if values:
        rng.choice(values).name = rng.choice(["", "other", *_value_names(graph)])


def drop_value(model, rng):
    graph = _some_graph(model, rng)
    field = rng.choice((graph.input, graph.output, graph.initializer, graph.value_info))
    if field:
        del field[rng.randrange(len(field))]


def duplicate_value(model, rng):
    graph = _some_graph(model, rng)
    field = rng.choice((graph.input, graph.output, graph.initializer))
    if field:
        field.add().CopyFrom(rng.choice(field))


def change_opset(model, rng):
    if model.opset_import and rng.random() < 0.8:
        rng.choice(model.opset_import).version = rng.choice((-1, 0, 1, 5, 6, 7, 9, 11, 13, 17, 21, 25, 2**40))
    elif model.opset_import:
        del model.opset_import[:]
    else:
        model.opset_import.add(domain=rng.choice(DOMAINS), version=1)


def change_ir_version(model, rng):
    model.ir_version = rng.choice((-1, 0, 1, 2, 3, 4, 8, 10, 99, 2**40))


def wrap_in_branches(model, rng):
    """All nodes of the main graph move into the branches of nested Ifs."""
    graph = model.graph
    for _ in range(rng.choice((1, 2, 5))):
        body = GraphProto(name="branch", node=graph.node, output=graph.output)
        condition = helper.make_tensor("fuzz_condition", TensorProto.BOOL, [], [rng.random() < 0.5])
        constant = helper.make_node("Constant", [], ["fuzz_condition"], value=condition)
        branch = helper.make_node(
            "If", ["fuzz_condition"], [value.name for value in graph.output], then_branch=body, else_branch=body
        )
        del graph.node[:]
        graph.node.extend([constant, branch] if not any("fuzz_condition" in node.output for node in body.node) else [branch])


def wrap_in_loop(model, rng):
    """All nodes of the main graph move into the body of a Loop."""
    graph = model.graph
    condition = helper.make_tensor_value_info("go", TensorProto.BOOL, [])
    body = GraphProto(name="body", node=graph.node, output=[condition, *graph.output])
    body.input.append(helper.make_tensor_value_info("i", TensorProto.INT64, []))
    body.input.append(condition)
    trips = helper.make_tensor("trips", TensorProto.INT64, [], [rng.choice((-1, 0, 1, 3))])
    nodes = [
        helper.make_node("Constant", [], ["trips"], value=trips),
        helper.make_node("Loop", ["trips", ""], [value.name for value in graph.output], body=body),
    ]
    del graph.node[:]
    graph.node.extend(nodes)


def wrap_in_function(model, rng):
    """A node becomes a call of a function, which may call itself."""
    node = _some_node(model, rng)
    domain, name = rng.choice((("local", "f"), (node.domain, node.op_type)))
    inner = helper.make_node("f", list(node.input), list(node.output), domain="local")
    inner.CopyFrom(node)
    if rng.random() < 0.2:
        inner.op_type, inner.domain = name, domain
    inputs = list(dict.fromkeys(filter(None, node.input)))
    outputs = [name for name in dict.fromkeys(node.output) if name]
    function = helper.make_function(domain, name, inputs, outputs, [inner], list(model.opset_import))
    model.functions.append(function)
    model.opset_import.add(domain="local", version=1)
    node.op_type, node.domain = name, domain
    node.input[:] = inputs


STRUCTURAL = (
    drop_node, duplicate_node, shuffle_nodes, rename_op, change_domain, rewire_input, rewire_input, swap_inputs,
    change_input_count, change_outputs, drop_attribute, retype_attribute, empty_attribute, odd_number_in_attribute,
    odd_number_in_attribute, odd_number_in_attribute, add_attribute, refer_to_attribute, spoil_initializer, spoil_initializer,
    add_initializer, make_input_constant, make_input_constant, change_declared_shape, change_declared_shape,
    change_declared_type, change_declared_type, rename_value, drop_value, duplicate_value, change_opset, change_ir_version,
    wrap_in_branches, wrap_in_loop, wrap_in_function,
)  # fmt: skip


def flip_bytes(data, rng):
    """Bytes changed, cut off, doubled or put in."""
    spoilt = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        position = rng.randrange(len(spoilt))
        choice = rng.random()
        if choice < 0.6:
            spoilt[position] = rng.randrange(256)
        elif choice < 0.75:
            del spoilt[position : position + rng.choice((1, 4, len(spoilt)))]
        elif choice < 0.9:
            spoilt[position:position] = spoilt[position : position + rng.choice((1, 16))]
        else:
            spoilt[position:position] = bytes(rng.randrange(256) for _ in range(3))
        if not spoilt:
            break
    return bytes(spoilt)


def mutate(data, rng):
    """One mutant of a serialized model.

    Returns:
        Its bytes, and the names of what was done.
    """
    if rng.random() < 0.2:
        return flip_bytes(data, rng), ["flip_bytes"]
    model = ModelProto.FromString(data)
    done = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        mutation = rng.choice(STRUCTURAL)
        mutation(model, rng)
        done.append(mutation.__name__)
    return model.SerializeToString(), done
