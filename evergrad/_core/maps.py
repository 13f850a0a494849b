"""Where a step uses its matrices: the linear maps z = a W that Kronecker estimators see, found in what the step computes.

A step is traced once and its program read: a matrix of the cell that is multiplied by vectors (`v @ W`, `W @ v`,
`eqx.nn.Linear`, `eg.dense`) and used for nothing else is a linear map. The step can then be taken again with the input
a of every map handed out and a zero added to every z, by which one can differentiate:

    ∂s'/∂W = Σ over its uses of a ⊗ B,    B = ∂s'/∂z, through all that follows within the step

Every other parameter should be small (a bias, a scale, a decay), and its derivative is taken as it is.
"""

import dataclasses
import functools
import math
import warnings
from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import Literal
from jaxtyping import Array, Float

from evergrad._cells.base import Cell, KroneckerCell, output_of, step_of
from evergrad._cells.unit import UnitCell
from evergrad._core.checks import InputError, refuse_unless
from evergrad._core.parameters import parameters, parted


def dense(v: Float[Array, " p"], weight: Float[Array, "p q"]) -> Float[Array, " q"]:
    """v @ weight, a linear map in so many words. Any product of a vector and a matrix of the cell is found; this says it.

    Examples:
        >>> eg.dense(jnp.ones(3), jnp.ones((3, 2))).tolist()
        [3.0, 3.0]
    """
    return v @ weight


@dataclasses.dataclass(frozen=True)
class Map:
    """A matrix that a step only multiplies vectors by."""

    leaf: int  # its place among the parameters of the cell
    name: str
    transposed: bool  # W @ a rather than a @ W
    mask: np.ndarray | None  # [p, q]: which entries of W count, if not all do
    uses: tuple[int, ...]  # which of the step's products it is in
    p: int
    q: int
    rows: np.ndarray  # of the flat state: what it can reach, now or later

    def gradient(self, array: Float[Array, "*lead p q"]) -> Float[Array, "*lead a b"]:
        """A gradient in the shape that the cell has W in; entries that do not count get none."""
        if self.mask is not None:
            array = jnp.where(jnp.broadcast_to(self.mask, array.shape), array, 0)
        return array.mT if self.transposed else array


@dataclasses.dataclass(frozen=True)
class Rest:
    """A parameter that is no linear map. `why` says what else a matrix is used for."""

    leaf: int
    name: str
    shape: tuple[int, ...]
    why: str | None
    rows: np.ndarray


@dataclasses.dataclass(frozen=True)
class Maps:
    """All parameters of a cell that a step looks at, sorted, and the names of those that it does not look at."""

    maps: tuple[Map, ...]
    rest: tuple[Rest, ...]
    unused: tuple[str, ...]


def maps_of(cell: Cell) -> Maps:
    """The parameters of a cell, sorted into linear maps and the rest."""
    if not isinstance(cell, KroneckerCell):
        return program_of(cell).maps
    p, q = cell.weight.shape
    mask = cell.mask if cell.is_masked else None
    return Maps((Map(0, ".weight", False, mask, (0,), p, q, np.arange(cell.states * cell.units)),), (), ())


def rows_of(a: Array, rows: np.ndarray, axis: int = 0) -> Array:
    """Some rows, or other slices, of an array; without a copy where they are all of them, by a slice where they follow each other."""
    if len(rows) == a.shape[axis]:
        return a
    first, last = int(rows[0]), int(rows[-1])
    if last - first + 1 == len(rows):
        return jax.lax.slice_in_dim(a, first, last + 1, axis=axis)
    return jnp.take(a, rows, axis=axis)


def check_maps(cell: Cell, call: str) -> None:
    """Refuses a cell that Kronecker products cannot stand for, by the name of the parameter that is in the way."""
    refuse_unless(
        not isinstance(cell, UnitCell),
        f"`{call}` approximates an influence that is too large to keep, and that of {type(cell).__name__} is not: its units do "
        "not see each other, so RTRL is exact on it at O(parameters). Use RTRL().",
    )
    found = maps_of(cell)
    m = sum(a.size for a in jax.tree.leaves(jax.eval_shape(cell.initial)))
    name, others = type(cell).__name__, "Use RTRL, UORO or TBPTT, which need nothing of the kind"
    for each in found.rest:
        refuse_unless(
            len(each.shape) < 2 or math.prod(each.shape) <= m,
            f"`{call}` stores what a matrix W does as Kronecker products, which needs every large matrix of {name} to be used "
            f"as v @ W, with one vector v at a time, and for nothing else. {name}{each.name} {list(each.shape)} is used "
            f"{each.why or 'otherwise'}. Write that part with v @ W (or eg.dense, or eqx.nn.Linear), one product at a time, "
            f"outside of scan, cond and vmap, and without changing W first. {others}.",
        )
    refuse_unless(
        bool(found.maps),
        f"`{call}`: {name} has no matrix that a step multiplies a vector by, so there is nothing to store as Kronecker "
        f"products. {others}.",
    )
    maps, rest = sum(e.p * e.q for e in found.maps), sum(math.prod(e.shape) for e in found.rest)
    refuse_unless(
        rest <= maps,
        f"`{call}`: {name} has {rest:,} parameters outside of its linear maps, whose influence is kept as it is, and "
        f"{maps:,} in them: storing the latter as Kronecker products would save little. {others}.",
    )


def check_cell(cell: Cell) -> None:
    """Refuses a cell whose step does not give the state that it takes; a parameter that it never looks at is probably a slip."""
    if isinstance(cell, KroneckerCell) or not jax.tree.leaves(parameters(cell)):
        return
    unused = program_of(cell).unused_in_output(cell)
    if unused:
        warnings.warn(
            f"{type(cell).__name__} has parameters that neither `step` nor `output` looks at, so they will not be trained: "
            f"{', '.join(name.lstrip('.') for name in unused)}. Use them, or take them out.",
            stacklevel=4,
        )


# ---- reading a program -------------------------------------------------------------------------------------------


class _Alias:
    """A parameter on its way through a program: still itself but for orientation, precision and a mask."""

    def __init__(self, leaf: int, array: Any, transposed: bool = False, mask: np.ndarray | None = None):
        self.leaf, self.array, self.transposed, self.mask = leaf, array, transposed, mask


@dataclasses.dataclass(frozen=True)
class _Product:
    """A vector times a matrix. `mask` [p, q]."""

    leaf: int
    transposed: bool
    mask: np.ndarray | None
    vector: Any
    z: Any


class Program:
    """A step of a cell, traced and read."""

    def __init__(self, cell: Cell):
        trained, others, static = _parted(cell)

        def step(trained, others, state, x):
            return step_of(eqx.combine(trained, others, static))(state, x)

        x = jax.ShapeDtypeStruct((cell.inputs,), jnp.result_type(*jax.tree.leaves(trained)))
        state = jax.eval_shape(cell.initial)
        shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), (trained, others, state, x))
        self._jaxpr, new = jax.make_jaxpr(step, return_shape=True)(*shapes)
        _check_state(cell, state, new)
        self._form, self._sizes = jax.tree.structure(state), [math.prod(a.shape) for a in jax.tree.leaves(state)]
        named = jax.tree_util.tree_leaves_with_path(trained)
        self._names, self._shapes = [jax.tree_util.keystr(path) for path, _ in named], [a.shape for _, a in named]
        self.maps = self._sorted(shapes)
        opened = {each.leaf for each in self.maps.maps}
        self.products = [
            jax.ShapeDtypeStruct(each.z.shape, each.z.dtype) for each in self._look(shapes, opened).products
        ]

    def take(self, cell: Cell, zeros: Iterable[Array], state: Any, x: Array) -> tuple[Any, list[Array]]:
        """The new state, with a zero added to the z of every product with a map, and the vectors of those products."""
        trained, others, _ = _parted(cell)
        opened = {each.leaf for each in self.maps.maps}
        reading = _Reading(opened, list(zeros))
        new = self._run(reading, (trained, others, state, x))
        return new, [each.vector for each in reading.products]

    def _run(self, reading, given):
        out = reading.run(self._jaxpr.jaxpr, self._jaxpr.consts, reading.opened(jax.tree.leaves(given)))
        return jax.tree.unflatten(self._form, [reading.plain(v, "as a state") for v in out])

    def _look(self, shapes, opened):
        reading = _Reading(opened)
        jax.eval_shape(lambda given: self._run(reading, given), shapes)
        return reading

    def _sorted(self, shapes) -> Maps:
        matrices = {i for i, shape in enumerate(self._shapes) if len(shape) == 2}
        seen = self._look(shapes, matrices)
        reach = self._reach()
        outside = dict(seen.outside)
        for leaf in matrices:
            uses = [each for each in seen.products if each.leaf == leaf]
            if any(each.transposed != uses[0].transposed for each in uses):
                outside.setdefault(leaf, "both as v @ W and as W @ v")
            if any(not _same(each.mask, uses[0].mask) for each in uses):
                outside.setdefault(leaf, "with different entries of it left out")
        chosen = {each.leaf for each in seen.products if len(reach[each.leaf])} - {*outside}
        again = self._look(shapes, chosen)
        maps, rest, unused = [], [], []
        for leaf, (name, shape) in enumerate(zip(self._names, self._shapes, strict=True)):
            if leaf in chosen:
                maps.append(self._map(leaf, again.products, reach[leaf]))
            elif len(reach[leaf]):
                rest.append(Rest(leaf, name, shape, outside.get(leaf), reach[leaf]))
            else:
                unused.append(name)
        return Maps(tuple(maps), tuple(rest), tuple(unused))

    def _map(self, leaf, products, rows):
        mine = [(i, each) for i, each in enumerate(products) if each.leaf == leaf]
        _, first = mine[0]
        shape = self._shapes[leaf]
        p, q = shape[::-1] if first.transposed else shape
        return Map(leaf, self._names[leaf], first.transposed, first.mask, tuple(i for i, _ in mine), p, q, rows)

    def _reach(self) -> list[np.ndarray]:
        """For every parameter, the numbers of the state that it can change, in this step or in one that follows."""
        jaxpr, count, states = self._jaxpr.jaxpr, len(self._names), len(self._sizes)
        before = len(jaxpr.invars) - states - 1
        marks = [frozenset([("p", i)]) if i < count else frozenset() for i in range(before)]
        marks += [frozenset([("s", i)]) for i in range(states)] + [frozenset()]
        changed: dict[tuple[str, int], set[int]] = {}
        for part, sources in enumerate(_sources(jaxpr, marks)):
            for source in sources:
                changed.setdefault(source, set()).add(part)
        ends = np.cumsum([0, *self._sizes])
        return [self._numbers(self._closure(changed, changed.get(("p", i), set())), ends) for i in range(count)]

    def _closure(self, changed, parts):
        while True:
            more = parts.union(*(changed.get(("s", part), set()) for part in parts))
            if more == parts:
                return sorted(parts)
            parts = more

    def _numbers(self, parts, ends):
        return np.concatenate([np.arange(ends[i], ends[i + 1]) for i in parts] or [np.arange(0)])

    def unused_in_output(self, cell: Cell) -> list[str]:
        """Of the parameters that a step does not look at, those that neither the output nor the start looks at."""
        if not self.maps.unused:
            return []
        trained, others, static = _parted(cell)
        dtype = jnp.result_type(*jax.tree.leaves(trained))
        state, x = jax.eval_shape(cell.initial), jax.ShapeDtypeStruct((cell.inputs,), dtype)

        def seen(trained, state, x):
            cell = eqx.combine(trained, others, static)
            return output_of(cell, state, x), cell.initial()

        jaxpr = jax.make_jaxpr(seen)(trained, state, x).jaxpr
        marks = [frozenset([i]) for i in range(len(jaxpr.invars))]
        used = frozenset().union(*_sources(jaxpr, marks))
        return [name for i, name in enumerate(self._names) if name in self.maps.unused and i not in used]


def _parted(cell: Cell) -> tuple[Any, Any, Any]:
    """What is trained, the other arrays, and what is no array."""
    trained, others = parted(cell)
    return trained, *eqx.partition(others, eqx.is_array)


def _check_state(cell, state, new):
    same = jax.tree.structure(state) == jax.tree.structure(new)
    same = same and all(a.shape == b.shape for a, b in zip(*map(jax.tree.leaves, (state, new)), strict=True))

    def shown(tree):
        return ", ".join(str(list(a.shape)) for a in jax.tree.leaves(tree))

    refuse_unless(
        same,
        f"a step of {type(cell).__name__} gives another state ({shown(new)}) than `initial()` ({shown(state)}): both must be "
        "of the same structure and shapes, at every step.",
    )


def _same(a: Any, b: Any) -> bool:
    return np.array_equal(np.asarray(a), np.asarray(b))


def _sources(jaxpr: Any, marks: list[frozenset]) -> list[frozenset]:
    """Which marks every output of a program depends on."""
    known = dict(zip(jaxpr.invars, marks, strict=True))

    def look(v):
        return frozenset() if isinstance(v, Literal) else known.get(v, frozenset())

    for eqn in jaxpr.eqns:
        given, inner = [look(v) for v in eqn.invars], _inner(eqn)
        out = _sources(inner[0], given) if inner else [frozenset().union(*given)] * len(eqn.outvars)
        known.update(zip(eqn.outvars, out, strict=True))
    return [look(v) for v in jaxpr.outvars]


def _inner(eqn) -> tuple[Any, list] | None:
    """The program that an equation only stands for, and its constants."""
    if eqn.primitive.name not in ("jit", "pjit", "closed_call", "core_call", "checkpoint", "remat2"):
        return None
    inner = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
    return (inner.jaxpr, inner.consts) if hasattr(inner, "consts") else (inner, [])


class _Reading:
    """Runs a program, equation by equation, with some parameters as aliases of themselves until something is done with them."""

    def __init__(self, leaves: set[int], zeros: list[Array] | None = None):
        self._leaves, self._zeros = leaves, zeros
        self.products: list[_Product] = []
        self.outside: dict[int, str] = {}  # what else a parameter is used for

    def opened(self, values: list) -> list:
        return [_Alias(i, v) if i in self._leaves else v for i, v in enumerate(values)]

    def run(self, jaxpr: Any, consts: list, values: list) -> list:
        known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *values), strict=True))

        def look(v):
            return v.val if isinstance(v, Literal) else known[v]

        for eqn in jaxpr.eqns:
            known.update(zip(eqn.outvars, self._equation(eqn, [look(v) for v in eqn.invars]), strict=True))
        return [look(v) for v in jaxpr.outvars]

    def plain(self, value: Any, why: str) -> Any:
        """The array itself, for what is no product with a vector."""
        if not isinstance(value, _Alias):
            return value
        self.outside.setdefault(value.leaf, why)
        return value.array

    def _equation(self, eqn, given):
        if not any(isinstance(v, _Alias) for v in given):
            return _bound(eqn, given)
        if inner := _inner(eqn):
            return self.run(*inner, given)
        followed = self._followed(eqn, given)
        if followed is not None:
            return [followed]
        return _bound(eqn, [self.plain(v, _use(eqn)) for v in given])

    def _followed(self, eqn, given):
        """What becomes of an alias, or the product that it goes into; None for anything else."""
        name = eqn.primitive.name
        alias = next(v for v in given if isinstance(v, _Alias))
        if name == "dot_general":
            return self._product(eqn, given)
        if name == "transpose":
            return self._changed(eqn, given, alias, transposed=not alias.transposed, mask=_turned(alias.mask))
        if name in ("convert_element_type", "copy"):
            return self._changed(eqn, given, alias, alias.transposed, alias.mask)
        if name == "select_n" and (mask := _mask(given)) is not None:
            mask = mask if alias.mask is None else mask & alias.mask
            return self._changed(eqn, given, alias, alias.transposed, mask)
        return None

    def _changed(self, eqn, given, alias, transposed, mask):
        (array,) = _bound(eqn, [v.array if isinstance(v, _Alias) else v for v in given])
        return _Alias(alias.leaf, array, transposed, mask)

    def _product(self, eqn, given):
        which = [isinstance(v, _Alias) for v in given]
        contracted, (batched, _) = eqn.params["dimension_numbers"]
        alias, vector = given if which[0] else given[::-1]
        if sum(which) != 1 or len(batched) or len(contracted[0]) != 1 or vector.ndim != 1:
            return None
        (axis,) = contracted[0 if which[0] else 1]
        mask = _turned(alias.mask) if axis == 1 else alias.mask
        (z,) = _bound(eqn, [v.array if isinstance(v, _Alias) else v for v in given])
        if self._zeros is not None:
            z = z + self._zeros[len(self.products)]
        self.products.append(_Product(alias.leaf, alias.transposed != (axis == 1), mask, vector, z))
        return z


def _turned(mask):
    return None if mask is None else mask.T


def _use(eqn) -> str:
    """In words, for a message."""
    inside = {"scan": "inside a scan", "while": "inside a loop", "cond": "inside a condition"}
    if eqn.primitive.name == "dot_general":
        return "with several vectors at once, as under vmap, or with another matrix"
    return inside.get(eqn.primitive.name, f"in something else than a product (`{eqn.primitive.name}`)")


def _mask(given: list) -> np.ndarray | None:
    """Where `select_n` takes the parameter and not zero; None if it does something else."""
    predicate, *cases = given
    if len(cases) != 2 or sum(isinstance(case, _Alias) for case in cases) != 1:
        return None
    first_is = isinstance(cases[0], _Alias)
    other = cases[1] if first_is else cases[0]
    if isinstance(predicate, Tracer) or isinstance(other, Tracer) or np.asarray(other).any():
        return None
    return ~np.asarray(predicate) if first_is else np.asarray(predicate)


def _bound(eqn, given):
    """An equation's results; of constants at once, so that a mask made of constants is one."""
    found = eqn.primitive.get_bind_params(eqn.params)
    functions, params = found if isinstance(found, tuple) else ((), found)  # before and after JAX 0.9
    if any(isinstance(v, Tracer) for v in given):
        out = eqn.primitive.bind(*functions, *given, **params)
    else:
        with jax.ensure_compile_time_eval():
            out = eqn.primitive.bind(*functions, *given, **params)
    return out if eqn.primitive.multiple_results else [out]


def program_of(cell: Cell) -> Program:
    """The program of a cell's step, read once for all cells of the same form."""
    return _read_once(_Form(cell))


class _Form:
    """A cell as far as its program depends on it: the structure, and the shapes of its arrays."""

    def __init__(self, cell: Cell):
        arrays, self._static = eqx.partition(cell, eqx.is_array)
        leaves, tree = jax.tree.flatten(arrays)
        self._key = tree, tuple((a.shape, jnp.dtype(a.dtype).name) for a in leaves), jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
        self.cell: Cell | None = cell

    def __hash__(self):
        return hash(self._key)

    def __eq__(self, other):
        return self._key == other._key and bool(eqx.tree_equal(self._static, other._static))


@functools.lru_cache(maxsize=256)
def _read_once(form: _Form) -> Program:
    cell, form.cell = form.cell, None  # what is looked up by must not keep arrays alive
    if cell is None:
        raise InputError("a cell's form was read twice")
    return Program(cell)
