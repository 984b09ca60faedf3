"""Kernel look-up: ORT's version rule, type constraints by type strings, registration conflicts."""

import pytest

from ort_sdk.api import KernelDef, KernelRegistrationError, KernelRegistry, NodeArg
from ort_sdk.graph import Graph, Node
from ort_sdk.graph.type_strings import resolve_type_strings
from ort_sdk.kernels import RegistryLookup


def _factory(_info):
    return abs


def _lookup(registry, node, **types):
    graph = Graph(values={name: NodeArg(name, type_string) for name, type_string in types.items()})
    return RegistryLookup(registry, graph, {"": 17})


def _registry(*definitions):
    registry = KernelRegistry("TestExecutionProvider")
    for definition in definitions:
        registry.register(definition, _factory)
    return registry


def _relu(since_version):
    return Node("Relu", ["x"], ["y"], since_version=since_version)


@pytest.mark.parametrize(
    ("start", "end", "version", "matches"),
    [
        (6, None, 6, True),
        (6, None, 13, False),
        (6, 13, 6, True),
        (6, 13, 13, True),
        (6, 13, 14, False),
        (13, 14, 6, False),
    ],
)
def test_an_open_end_matches_its_start_only(start, end, version, matches):
    lookup = _lookup(_registry(KernelDef("Relu", start, end_version=end)), _relu(version), x="tensor(float)", y="tensor(float)")
    assert (lookup.lookup(_relu(version)) is not None) == matches


def test_the_first_argument_present_decides():
    registry = _registry(KernelDef("Clip", 13, type_constraints={"T": ("tensor(float)",)}))
    node = Node("Clip", ["", "low"], ["y"], since_version=13)
    assert _lookup(registry, node, low="tensor(float)").lookup(node) is not None
    lookup = _lookup(registry, node, low="tensor(double)")
    assert lookup.lookup(node) is None
    assert lookup.rejections(node) == [
        "version 13 matches; type constraint T allows tensor(float); input 1 'low' is tensor(double)"
    ]


def test_output_constraints_are_checked():
    registry = _registry(KernelDef("Cast", 13, type_constraints={"T2": ("tensor(float)",)}))
    node = Node("Cast", ["x"], ["y"], since_version=13)
    assert _lookup(registry, node, x="tensor(int64)", y="tensor(float)").lookup(node) is not None
    assert _lookup(registry, node, x="tensor(int64)", y="tensor(double)").lookup(node) is None


def test_a_formal_of_a_fixed_type_is_constrained_by_its_name():
    assert resolve_type_strings("", "Shape", 13) == {"T": (("input", 0),), "T1": (("output", 0),)}
    assert resolve_type_strings("", "ReduceSum", 13)["axes"] == (("input", 1),)
    assert resolve_type_strings("acme", "Wanted", 1) is None


def test_registration_order_decides():
    registry = KernelRegistry("TestExecutionProvider")
    registry.kernel("Relu", 14, {"T": ["tensor(float)"]}, when=lambda _info: "never")(_factory)
    second = registry.kernel("Relu", 14)(lambda _info: max)
    node = _relu(14)
    assert _lookup(registry, node, x="tensor(float)").lookup(node).create is second


@pytest.mark.parametrize(
    ("first", "second", "conflict"),
    [
        (KernelDef("Relu", 6), KernelDef("Relu", 6), True),
        (KernelDef("Relu", 6), KernelDef("Relu", 1, end_version=6), True),
        (KernelDef("Relu", 6), KernelDef("Relu", 1, end_version=5), False),
        (KernelDef("Relu", 6), KernelDef("Relu", 1), False),
        (KernelDef("Relu", 6, end_version=13), KernelDef("Relu", 13, end_version=14), True),
        (
            KernelDef("Relu", 6, type_constraints={"T": ("tensor(float)",)}),
            KernelDef("Relu", 6, type_constraints={"T": ("tensor(double)",)}),
            False,
        ),
    ],
)
def test_conflicts(first, second, conflict):
    registry = _registry(first)
    if conflict:
        with pytest.raises(KernelRegistrationError, match=r"Relu.*conflicts with.*Relu"):
            registry.register(second, _factory)
    else:
        registry.register(second, _factory)


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        (KernelDef("Relu", 7), r"no since-version in 7; it has \[1, 6, 13, 14\]"),
        (KernelDef("Relu", 14, type_constraints={"Q": ("tensor(float)",)}), r"no type constraint 'Q'; the operator has \['T'\]"),
        (KernelDef("Relu", 14, type_constraints={"T": ("tensor(string)",)}), r"does not allow \['tensor\(string\)'\]"),
        (KernelDef("Relu", 14, type_constraints={"T": ()}), "does not allow an empty list"),
    ],
)
def test_definitions_that_can_never_match_are_refused(definition, text):
    with pytest.raises(KernelRegistrationError, match=text):
        KernelRegistry("TestExecutionProvider").register(definition, _factory)


def test_operators_without_a_schema_match_by_name_and_version():
    registry = _registry(KernelDef("Wanted", 1, domain="acme"))
    node = Node("Wanted", ["x"], ["y"], domain="acme", since_version=3)
    assert _lookup(registry, node).lookup(node) is not None


@pytest.mark.parametrize("given", [lambda rows: rows.keys(), set, list, iter], ids=["view", "set", "list", "iterator"])
def test_a_sources_operators_are_those_it_was_added_with(given):
    rows, registry = {("", "Abs"): 1}, KernelRegistry("some")
    operators = given(rows)
    registry.add_source(lambda _domain, _op_type: [], operators)
    rows["", "Neg"] = 2
    if isinstance(operators, set | list):
        operators.clear()
    assert registry.operators() == (("", "Abs"),)
