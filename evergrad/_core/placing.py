"""Where arrays lie: states, sources and positions spread over the devices of a mesh, and functions of them.

How a tree is spread is said by a tree of numbers, one for every array: the axis that is cut, −1 where every device
has it all.

Streams are spread by hand: every device runs the loop on its own lanes, since nothing but sums crosses them
(`evergrad._core.across`). The influence of a stream is spread by XLA: the loop is written for whole arrays, `hold` says
where the large ones lie after every step, and the compiler cuts all that makes or uses them. So no estimator knows devices.
"""

from collections.abc import Callable
from typing import Any, NoReturn, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from evergrad._core.across import LANES
from evergrad._core.checks import InputError, refuse_unless

INFLUENCE = "influence"
SHARDS = (LANES, INFLUENCE)


def mesh_for(mesh: Any, shard: str, call: str) -> Mesh:
    """All devices of a mesh in a row, under the name of what is spread over them."""
    refuse_unless(
        isinstance(mesh, Mesh), f"`{call}`: mesh must be a jax.sharding.Mesh, such as jax.make_mesh((2,), ('lanes',))."
    )
    refuse_unless(shard in SHARDS, f'`{call}`: shard is "lanes" (each device has some streams) or "influence".')
    return Mesh(mesh.devices.reshape(-1), (shard,))


def check_divides(batch: int, mesh: Mesh, call: str) -> None:
    devices = mesh.size
    refuse_unless(
        mesh.axis_names != (LANES,) or batch % devices == 0,
        f"`{call}`: {batch} streams cannot be shared out evenly over {devices} devices: use a batch that is a multiple of "
        f'{devices}, or fewer devices; shard="influence" splits every stream instead.',
    )


def share(size: int, mesh: Mesh | None) -> int:
    """Of so many bytes, those that are in one memory: a device's own, or this process's if its devices are CPUs."""
    if mesh is None:
        return size
    together = len(mesh.local_devices) if mesh.devices.flat[0].platform == "cpu" else 1
    return size * together // mesh.size


def mesh_of(state: Any) -> Mesh | None:
    """The mesh that a state was spread over; None for a state on one device, or one that is being traced."""
    hidden = state.hidden
    sharding = hidden.sharding if isinstance(hidden, jax.Array) and not isinstance(hidden, Tracer) else None
    if isinstance(sharding, NamedSharding) and sharding.mesh.axis_names in ((LANES,), (INFLUENCE,)):
        return cast(Mesh, sharding.mesh)
    return None


def everywhere(tree: Any) -> Any:
    """Every device has all of it."""
    return jax.tree.map(lambda _: -1, eqx.filter(tree, _has_shape))


def along(axis: int, tree: Any) -> Any:
    """Every array is cut along the same axis."""
    return jax.tree.map(lambda _: axis, eqx.filter(tree, _has_shape))


def _has_shape(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def shardings(axes: Any, mesh: Mesh) -> Any:
    """A tree of axes as one of shardings."""
    return jax.tree.map(lambda axis: NamedSharding(mesh, _spec(axis, mesh)), axes)


def _spec(axis: int, mesh: Any) -> PartitionSpec:
    return PartitionSpec() if axis < 0 else PartitionSpec(*[None] * axis, *mesh.axis_names)


def place(tree: Any, axes: Any, mesh: Mesh) -> Any:
    """The tree with its arrays spread; those that already are stay as they are."""
    arrays, rest = eqx.partition(tree, eqx.is_array)
    return eqx.combine(jax.tree.map(_put, arrays, shardings(axes, mesh)), rest)


def _put(array: Any, sharding: NamedSharding) -> jax.Array:
    if isinstance(array, jax.Array) and array.sharding.is_equivalent_to(sharding, array.ndim):
        return array
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(_put(jax.random.key_data(array), sharding), impl=jax.random.key_impl(array))
    if sharding.is_fully_addressable:
        return jax.device_put(array, sharding)
    host = np.asarray(array)  # of which a process hands its own part to its own devices
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])


def here(tree: Any) -> Any:
    """A tree that every device has all of, as this process's own arrays."""
    return jax.tree.map(lambda a: a.addressable_data(0) if isinstance(a, jax.Array) else a, tree)


def spread(function: Callable, mesh: Mesh, given: tuple, axes: tuple, results: Any) -> Any:
    """function(*given), with every device at work on its part of it. `axes` are those of `given`, `results` those of
    what comes out, or a number for a whole branch."""
    return (_by_hand if mesh.axis_names == (LANES,) else _by_compiler)(function, mesh, given, axes, results)


def _by_compiler(function, mesh, given, axes, results):
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        return _held(function(*_held(given, axes)), results)


def compiler_cuts() -> bool:
    """Whether the arrays that are being traced are whole ones, which the compiler cuts."""
    return INFLUENCE in jax.sharding.get_abstract_mesh().auto_axes


def hold(tree: Any, axes: Callable[[Any, Any], Any]) -> Any:
    """The tree with its arrays spread as axes(tree, mesh) says, where the compiler cuts; elsewhere the tree."""
    return _held(tree, axes(tree, jax.sharding.get_abstract_mesh())) if compiler_cuts() else tree


def hold_everywhere(tree: Any) -> Any:
    """The tree with every device having all of it, where the compiler cuts; elsewhere the tree.

    What makes it may well be cut: its parts are put together, and not those of what it is made from.
    """
    return hold(_made_anywhere(tree), lambda tree, _: everywhere(tree))


def _made_anywhere(tree):
    def open_(a):
        return jax.lax.with_sharding_constraint(a, PartitionSpec(*[PartitionSpec.UNCONSTRAINED] * a.ndim))

    arrays, rest = eqx.partition(tree, eqx.is_array)
    return eqx.combine(jax.tree.map(open_, arrays), rest) if compiler_cuts() else tree


def _held(tree, axes):
    mesh = jax.sharding.get_abstract_mesh()
    arrays, rest = eqx.partition(tree, eqx.is_array)

    def held(axis, branch):
        return jax.tree.map(lambda a: jax.lax.with_sharding_constraint(a, _spec(axis, mesh)), branch)

    return eqx.combine(jax.tree.map(held, axes, arrays), rest)


def _by_hand(function, mesh, given, axes, results):
    arrays, rest = eqx.partition(given, eqx.is_array)

    def specs(axes):
        return jax.tree.map(lambda axis: _spec(axis, mesh), axes)

    static = []

    def part(arrays):
        out, others = eqx.partition(function(*eqx.combine(arrays, rest)), eqx.is_array)
        static.append(others)
        return out

    mapped = jax.shard_map(part, mesh=mesh, in_specs=(specs(axes),), out_specs=specs(results), check_vma=False)
    return eqx.combine(mapped(arrays), static[-1])


def refuse_unspread(what: Any) -> NoReturn:
    raise InputError(
        f"{type(what).__name__} does not say which of its arrays have streams, so it cannot be spread over devices: give "
        "it the method `stream_axes` (see `evergrad.extend.Source`)."
    )
