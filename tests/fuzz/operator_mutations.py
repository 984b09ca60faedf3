"""Seeded mutations of operators' feeds, shapes, attributes and layouts: what a stranger's model and inputs may have in them."""

import math

import numpy as np
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper

HUGE = (2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1)
INTEGERS = (-(2**63), -(2**31), -100, -2, -1, 0, 1, 2, 3, 5, 7, 17, 64, *HUGE)
FLOATS = (0.0, -0.0, -1.0, 0.5, 1e-38, 1e38, float("inf"), float("-inf"), float("nan"))
SIZES = (0, 1, 2, 3, 5, 7, 16, 17, 33)
MOST_ELEMENTS = 1 << 16
"""Of a mutated feed, unless it was large before."""


class Subject:
    """A model and its feeds while they are mutated.

    Args:
        data: the model's bytes.
        feeds: arrays, or whatever else the model takes, by name.
    """

    def __init__(self, data, feeds):
        self.model = ModelProto.FromString(data)
        self.feeds = dict(feeds)
        self.warm_feeds = None
        """Feeds of the runs before, where only contents or layouts of feeds differ; None where a run with them shows nothing."""
        self.is_exotic = False
        """Whether numbers are so large, or no numbers, that the order of sums decides between them."""

    def arrays(self):
        """Names of feeds that are arrays, in order."""
        return [name for name, value in self.feeds.items() if isinstance(value, np.ndarray)]

    def node(self, rng):
        """Any node, bodies' included."""
        return rng.choice(list(nodes_of(self.model.graph)))


def nodes_of(graph):
    """The nodes of a graph and of the bodies in it."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from nodes_of(attribute.g)


def _some(subject, rng, is_wanted=lambda array: True):
    names = [name for name in subject.arrays() if is_wanted(subject.feeds[name])]
    return rng.choice(names) if names else None


def _sized(array, shape):
    """An array's elements, again and again, in another shape; None if that has too many."""
    if math.prod(shape) > max(MOST_ELEMENTS, 2 * array.size):
        return None
    return np.resize(array, shape) if array.size else np.zeros(shape, array.dtype)


def _reshape(subject, name, shape):
    made = _sized(subject.feeds[name], shape)
    if made is not None:
        subject.feeds[name] = made


def resize_axis(subject, rng):
    name = _some(subject, rng, lambda array: array.ndim)
    if name is not None:
        _reshape(subject, name, _with_other_size(subject.feeds[name].shape, rng))


def _with_other_size(shape, rng):
    axis = rng.randrange(len(shape))
    size = max(0, rng.choice((*SIZES, shape[axis] - 1, shape[axis] + 1, 2 * shape[axis], shape[axis] // 2)))
    return (*shape[:axis], size, *shape[axis + 1 :])


def resize_everywhere(subject, rng):
    """A size that occurs becomes another one wherever it occurs, so that shapes may still fit."""
    sizes = sorted({size for name in subject.arrays() for size in subject.feeds[name].shape})
    if sizes:
        before, after = rng.choice(sizes), rng.choice(SIZES)
        for name in subject.arrays():
            _reshape(subject, name, tuple(after if size == before else size for size in subject.feeds[name].shape))


def drop_axis(subject, rng):
    name = _some(subject, rng, lambda array: array.ndim)
    if name is not None:
        shape = list(subject.feeds[name].shape)
        del shape[rng.randrange(len(shape))]
        _reshape(subject, name, tuple(shape))


def add_axis(subject, rng):
    name = _some(subject, rng)
    if name is not None:
        shape = list(subject.feeds[name].shape)
        shape.insert(rng.randrange(len(shape) + 1), rng.choice((1, 1, 2, 3)))
        _reshape(subject, name, tuple(shape))


def swap_axes(subject, rng):
    name = _some(subject, rng, lambda array: array.ndim > 1)
    if name is not None:
        shape = list(subject.feeds[name].shape)
        rng.shuffle(shape)
        _reshape(subject, name, tuple(shape))


def odd_contents(subject, rng):
    """Indices, lengths, offsets and numbers as nobody expects them."""
    name = _some(subject, rng, lambda array: array.size and array.dtype.kind in "iufb")
    if name is None:
        return
    before = dict(subject.feeds)
    subject.feeds[name] = _with_odd_numbers(subject.feeds[name], rng)
    subject.warm_feeds = before if subject.warm_feeds is None else subject.warm_feeds
    subject.is_exotic |= subject.feeds[name].dtype.kind == "f"


def _with_odd_numbers(array, rng):
    made = array.copy()
    flat = made.reshape(-1)
    is_everywhere = rng.random() < 0.3 and flat.size <= MOST_ELEMENTS
    value = _odd_number(made.dtype, rng)
    for place in range(flat.size) if is_everywhere else rng.sample(range(flat.size), min(flat.size, rng.choice((1, 2, 5)))):
        flat[place] = value if rng.random() < 0.7 else _odd_number(made.dtype, rng)
    return made


def _odd_number(dtype, rng):
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return dtype.type(rng.choice(FLOATS))
    if dtype.kind == "b":
        return rng.random() < 0.5
    limits = np.iinfo(dtype)
    return rng.choice([number for number in (*INTEGERS, limits.min, limits.max) if limits.min <= number <= limits.max])


def odd_constant(subject, rng):
    """A weight, or a shape, axes and the like, as nobody expects it."""
    tensor = _some_constant(subject, rng)
    if tensor is not None:
        made = _with_odd_numbers(numpy_helper.to_array(tensor), rng)
        tensor.CopyFrom(numpy_helper.from_array(made, tensor.name))
        subject.is_exotic |= made.dtype.kind == "f"


def resize_constant(subject, rng):
    tensor = _some_constant(subject, rng)
    if tensor is not None and tensor.dims:
        made = _sized(numpy_helper.to_array(tensor), _with_other_size(tuple(tensor.dims), rng))
        if made is not None:
            tensor.CopyFrom(numpy_helper.from_array(made, tensor.name))


def _some_constant(subject, rng):
    """An initializer or a Constant's tensor that has numbers; None if there is none."""
    made = [each.t for node in nodes_of(subject.model.graph) if node.op_type == "Constant" for each in node.attribute]
    found = [each for each in (*subject.model.graph.initializer, *made) if each.data_type in _NUMBERS and math.prod(each.dims)]
    return rng.choice(found) if found else None


_NUMBERS = {helper.np_dtype_to_tensor_dtype(np.dtype(code)) for code in "?bBhHiIlLefd"}


def odd_attribute(subject, rng):
    node = subject.node(rng)
    found = [each for each in node.attribute if each.type in _ATTRIBUTES]
    if found:
        attribute = rng.choice(found)
        _ATTRIBUTES[attribute.type](attribute, subject, rng)


def _odd_int(attribute, subject, rng):
    near = (attribute.i + 1, attribute.i - 1, -attribute.i)
    attribute.i = rng.choice((*INTEGERS, *(number for number in near if abs(number) < 2**63)))


def _odd_float(attribute, subject, rng):
    attribute.f = rng.choice(FLOATS)
    subject.is_exotic = True


def _odd_ints(attribute, subject, rng):
    values = list(attribute.ints)
    kind = rng.random()
    if kind < 0.6 and values:
        values[rng.randrange(len(values))] = rng.choice(INTEGERS)
    elif kind < 0.7:
        values.reverse()
    elif kind < 0.8:
        values = values[:-1]
    elif kind < 0.9:
        values.append(rng.choice(INTEGERS))
    else:
        values = [rng.choice(INTEGERS)] * len(values)
    attribute.ints[:] = values


_ATTRIBUTES = {AttributeProto.INT: _odd_int, AttributeProto.FLOAT: _odd_float, AttributeProto.INTS: _odd_ints}
COMMON_ATTRIBUTES = {
    "axis": 1, "axes": [0], "strides": [2, 2], "dilations": [2, 2], "pads": [1, 1, 1, 1], "kernel_shape": [2, 2], "group": 2,
    "ceil_mode": 1, "block_size": 16, "num_heads": 2, "kv_num_heads": 1, "local_window_size": 2, "keepdims": 0, "layout": 1,
    "output_padding": [1, 1], "bits": 8, "unidirectional": 1, "is_causal": 1, "do_rotary": 1, "batch_dims": 1,
}  # fmt: skip


def add_attribute(subject, rng):
    """One that the operator may have, or not."""
    node = subject.node(rng)
    name, value = rng.choice(sorted(COMMON_ATTRIBUTES.items()))
    if all(each.name != name for each in node.attribute):
        node.attribute.append(helper.make_attribute(name, value))


def drop_attribute(subject, rng):
    node = subject.node(rng)
    if node.attribute:
        del node.attribute[rng.randrange(len(node.attribute))]


def drop_input(subject, rng):
    """An input is absent."""
    node = subject.node(rng)
    if node.input:
        node.input[rng.randrange(len(node.input))] = ""


def repeat_input(subject, rng):
    """Two inputs are one value."""
    node = subject.node(rng)
    given = [name for name in node.input if name]
    if given:
        node.input[rng.randrange(len(node.input))] = rng.choice(given)


def make_constant(subject, rng):
    """A feed becomes an initializer."""
    name = _some(subject, rng)
    found = [value for value in subject.model.graph.input if value.name == name]
    if found and subject.feeds[name].dtype.kind in "iufb":
        subject.model.graph.input.remove(found[0])
        subject.model.graph.initializer.append(numpy_helper.from_array(subject.feeds.pop(name), name))
        subject.warm_feeds = None


def make_feed(subject, rng):
    """An initializer becomes a feed."""
    graph = subject.model.graph
    inputs = {value.name for value in graph.input}
    found = [tensor for tensor in graph.initializer if tensor.name not in inputs and tensor.data_type <= TensorProto.DOUBLE]
    if found:
        tensor = rng.choice(found)
        graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, None))
        subject.feeds[tensor.name] = numpy_helper.to_array(tensor)
        graph.initializer.remove(tensor)
        subject.warm_feeds = None


def lay_out_feed(subject, rng):
    """A feed lies in memory otherwise: with gaps, backwards, transposed, at an odd address, or read-only."""
    name = _some(subject, rng, lambda array: array.ndim and array.dtype.kind in "iufb")
    if name is not None:
        subject.feeds[name] = rng.choice(LAYOUTS)(subject.feeds[name])
        subject.warm_feeds = None


def _with_gaps(array):
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    wide[..., ::2] = array
    return wide[..., ::2]


def _backwards(array):
    return array[::-1].copy()[::-1]


def _transposed(array):
    return np.asfortranarray(array)


def _channels_last(array):
    return np.moveaxis(np.moveaxis(array, 1, -1).copy(), -1, 1) if array.ndim > 2 else _transposed(array)


def _at_odd_address(array):
    memory = np.zeros(array.nbytes + 1, np.uint8)[1:]
    made = memory.view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def _read_only(array):
    made = array.copy()
    made.flags.writeable = False
    return made


LAYOUTS = (_with_gaps, _backwards, _transposed, _channels_last, _at_odd_address, _read_only)


def transpose_inside(subject, rng):
    """The model transposes a feed back that is transposed: the operator reads a view."""
    name = _some(subject, rng, lambda array: array.ndim > 1)
    if name is None:
        return
    array = subject.feeds[name]
    order = list(range(array.ndim))
    rng.shuffle(order)
    subject.feeds[name] = np.ascontiguousarray(array.transpose(order))
    back = [int(axis) for axis in np.argsort(order)]
    _put_between(subject, name, [helper.make_node("Transpose", [name], [f"{name}_lying"], perm=back)])


def slice_inside(subject, rng):
    """The model takes every second element of a feed, or takes it backwards: the operator reads a view with gaps."""
    name = _some(subject, rng, lambda array: array.ndim)
    if name is None or next((each.version for each in subject.model.opset_import if not each.domain), 0) < 13:
        return
    array = subject.feeds[name]
    axis = rng.randrange(array.ndim)
    is_reversed = rng.random() < 0.5
    fed = np.flip(array, axis).copy() if is_reversed else np.repeat(array, 2, axis)
    numbers = {"from": -1 if is_reversed else 0, "to": -(2**62) if is_reversed else 2**62, "axis": axis}
    numbers["step"] = -1 if is_reversed else 2
    for key, value in numbers.items():
        subject.model.graph.initializer.append(helper.make_tensor(f"{name}_{key}", TensorProto.INT64, [1], [value]))
    subject.feeds[name] = fed
    names = [name, *(f"{name}_{key}" for key in numbers)]
    _put_between(subject, name, [helper.make_node("Slice", names, [f"{name}_lying"])])


def _put_between(subject, name, nodes):
    graph = subject.model.graph
    if any(f"{name}_lying" in node.output for node in graph.node):
        return
    for node in graph.node:
        node.input[:] = [f"{name}_lying" if each == name else each for each in node.input]
    rest = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes, *rest])
    subject.warm_feeds = None


MUTATIONS = {
    resize_axis: 4, resize_everywhere: 2, drop_axis: 1, add_axis: 1, swap_axes: 1, odd_contents: 4, odd_attribute: 4,
    odd_constant: 3, resize_constant: 1,
    add_attribute: 1, drop_attribute: 1, drop_input: 1, repeat_input: 1, make_constant: 2, make_feed: 1, lay_out_feed: 2,
    transpose_inside: 1, slice_inside: 1,
}  # fmt: skip


def mutate(subject, rng):
    """Change a subject; returns the names of what was done."""
    done = []
    for mutation in rng.choices(list(MUTATIONS), list(MUTATIONS.values()), k=rng.choice((1, 1, 1, 2, 2, 3))):
        mutation(subject, rng)
        done.append(mutation.__name__)
    done.append(declare(subject, rng))
    return done


def declare(subject, rng):
    """Let the model say of its values what may be said of the feeds as they are now."""
    graph = subject.model.graph
    for value in graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    del graph.value_info[:]
    how = rng.choice(("undeclared", "declared", "ranks"))
    for value in graph.input:
        array = subject.feeds.get(value.name)
        if isinstance(array, np.ndarray) and value.type.HasField("tensor_type"):
            _declare_shape(value.type.tensor_type, array.shape, how)
    return how


def _declare_shape(tensor_type, shape, how):
    tensor_type.ClearField("shape")
    if how != "undeclared":
        tensor_type.shape.SetInParent()
        for size in shape:
            dimension = tensor_type.shape.dim.add()
            if how == "declared":
                dimension.dim_value = size
