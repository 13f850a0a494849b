"""A recurrent highway network in ONNX, which has no such node: a Scan over the steps, of basic operators."""

from typing import Any

import numpy as np

import evergrad as eg
from evergrad._cells.rhn import DeepRHN
from evergrad.export.layout import Layout


def is_highway(cell: Any) -> bool:
    return type(cell) in (eg.RHN, DeepRHN)


def highway_nodes(helper: Any, cell: Any, seen: str, last: str) -> tuple[list, list[str], Layout, str]:
    """Nodes of the graph, the name of the state, the weights, and the name of what comes out: as `_layer_nodes` has them.

    The state is h [1, B, n] there and [B, n] inside the Scan.
    """
    weights = _weights(cell, last)
    body = helper.make_graph(
        _transitions(helper, cell, weights, last),
        f"step{last}",
        [_number(helper, "h_before", "B", cell.units), _number(helper, "x_now", "B", cell.inputs)],
        [_number(helper, "h_after", "B", cell.units), _number(helper, "h_seen", "B", cell.units)],
    )
    nodes = [
        helper.make_node("Squeeze", [f"h{last}", f"front{last}"], [f"h_first{last}"]),
        helper.make_node(
            "Scan", [f"h_first{last}", seen], [f"h_end{last}", f"hidden{last}"], body=body, num_scan_inputs=1
        ),
        helper.make_node("Unsqueeze", [f"h_end{last}", f"front{last}"], [f"h{last}_out"]),
    ]
    return nodes, [f"h{last}"], weights | {f"front{last}": np.array([0])}, f"hidden{last}"


def _number(helper: Any, name: str, *shape: Any) -> Any:
    return helper.make_tensor_value_info(name, 1, shape)  # 1: FLOAT


def _weights(cell: Any, last: str) -> Layout:
    """Of every transition: the rows for x (the first has them), for h, and the biases, each with candidate and carry gate."""
    levels = cell.weights if isinstance(cell, DeepRHN) else (cell.effective_weight,)
    made: Layout = {f"one{last}": np.array([1.0], np.float32), f"two{last}": np.array([2.0], np.float32)}
    for level, weight in enumerate(levels):
        weight = np.asarray(weight, np.float32)
        inputs = cell.inputs if level == 0 else 0
        if inputs:
            made[f"x_weight{last}"] = weight[:inputs]
        made[f"h_weight_{level}{last}"], made[f"bias_{level}{last}"] = weight[inputs:-1], weight[-1]
    return made


def _transitions(helper: Any, cell: Any, weights: Layout, last: str) -> list:
    """h' = f·h + (1−f)·c of every level, f = σ(z²), c = squash(z¹)."""
    nodes, h = [], "h_before"
    levels = sum(name.startswith("h_weight_") for name in weights)

    def node(kind, given, made, **settings):
        nodes.append(helper.make_node(kind, given, made if isinstance(made, list) else [made], **settings))
        return made

    for level in range(levels):
        own = f"_{level}"
        z = node("MatMul", [h, f"h_weight{own}{last}"], f"of_h{own}")
        if level == 0:
            of_x = node("MatMul", ["x_now", f"x_weight{last}"], "of_x")
            z = node("Add", [z, of_x], "of_both")
        z = node("Add", [z, f"bias{own}{last}"], f"z{own}")
        candidate, carry = node("Split", [z], [f"candidate{own}", f"carry{own}"], axis=-1)
        carry = node("Sigmoid", [carry], f"f{own}")
        if cell.squash == "tanh":
            candidate = node("Tanh", [candidate], f"c{own}")
        else:
            squashed = node("Mul", [node("Sigmoid", [candidate], f"s{own}"), f"two{last}"], f"s2{own}")
            candidate = node("Sub", [squashed, f"one{last}"], f"c{own}")
        kept = node("Mul", [carry, h], f"kept{own}")
        written = node("Mul", [node("Sub", [f"one{last}", carry], f"g{own}"), candidate], f"written{own}")
        h = node("Add", [kept, written], f"h{own}_next")
    node("Identity", [h], "h_after")
    node("Identity", [h], "h_seen")
    return nodes
