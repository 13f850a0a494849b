"""What a step cannot do without: its matrix products, or its pass over its largest array, in the best form found.

The best form in XLA is one stream at a time and in place (see evergrad/_core/streamwise.py). Kernels, where they can be had, are
another, and whichever is faster counts.
"""

import jax
import jax.numpy as jnp

import evergrad as eg
from evergrad import _native as native
from evergrad._core.linearize import initial_state
from evergrad._native import products
from evergrad.bench.settings import Setting
from evergrad.bench.timing import Case, in_place


def step_products(setting: Setting, times: int) -> dict[str, Case]:
    """H·A of all streams and terms, rank·gates·n³ multiply-adds a stream, as OK(window=0) has it at every step."""
    a, h = _arrays(setting)
    cases = {"by XLA": in_place(lambda a, h: _each_stream(lambda a, h: a @ h, a, h), a, h, times=times)}
    if native.available():
        a, h = _arrays(setting)
        cases["by kernels"] = in_place(_multiply, a.reshape(len(a), setting.units, -1), h, times=times)
    return cases


def window_products(setting: Setting, times: int) -> dict[str, Case]:
    """The products of a window: one suffix product a step, and P·A once a window; seconds a step of the window."""
    window = setting.window

    def fold(a, h):
        product = jax.lax.fori_loop(0, window, lambda _, p: p @ h, jnp.eye(len(h), dtype=h.dtype))
        return a @ product

    def fold_by_kernels(a, h):
        eye = jnp.broadcast_to(jnp.eye(setting.units, dtype=h.dtype)[None], h.shape)
        return _multiply(a, jax.lax.fori_loop(0, window, lambda _, p: _multiply(p, h), eye))

    a, h = _arrays(setting)
    cases = {"by XLA": in_place(lambda a, h: _each_stream(fold, a, h), a, h, times=times)}
    if native.available():
        a, h = _arrays(setting)
        cases["by kernels"] = in_place(fold_by_kernels, a.reshape(len(a), setting.units, -1), h, times=times)
    return {form: lambda whole=whole: whole() / window for form, whole in cases.items()}


def stack_products(setting: Setting) -> dict[str, Case]:
    """The products of a window of a stack, seconds a step of it: one suffix product of the whole state a step, and P·A of every layer
    once a window, of the rows of the state that the layer reaches, which are its own and those above.
    """
    window, m = setting.window, _state(setting) * setting.layers

    def fold(a, h):
        product = jax.lax.fori_loop(0, window, lambda _, p: p @ h, jnp.eye(m, dtype=h.dtype))
        return [each @ product[: each.shape[1], : each.shape[1]] for each in a]

    def each_stream(a, h):
        def one(b, a):
            return [x.at[b].set(new) for x, new in zip(a, fold([x[b] for x in a], h[b]), strict=True)]

        return jax.lax.fori_loop(0, setting.batch, one, a)

    def by_kernels(a, h):
        eye = jnp.broadcast_to(jnp.eye(m, dtype=h.dtype)[None], h.shape)
        p = jax.lax.fori_loop(0, window, lambda _, p: _multiply(p, h), eye)
        return [_multiply(x.mT, p[:, : x.shape[2], : x.shape[2]]).mT for x in a]

    def case(program):
        whole = in_place(program, _stack_arrays(setting), _orthogonal(setting.batch, m), times=1)
        return lambda: whole() / window

    cases = {"by XLA": case(each_stream)}
    return cases | ({"by kernels": case(by_kernels)} if native.available() else {})


def stack_read(setting: Setting, times: int) -> Case:
    """δ·A once, for the influences of all layers, as `one_read` has it for one."""
    m = _state(setting) * setting.layers

    def program(delta, arrays):
        read = [jnp.einsum("bm,bqm->bq", delta[:, : a.shape[2]], a) for a in arrays]
        return delta + 1e-9 * sum(each[:, :1] for each in read)

    return in_place(program, jnp.ones((setting.batch, m), jnp.float32), _stack_arrays(setting), times=times)


def _state(setting: Setting) -> int:
    """Numbers in the state of one layer."""
    return initial_state(getattr(eg, setting.cell)(1, setting.units, key=jax.random.key(0))).size


def _stack_arrays(setting):
    """The influence of each layer, the lowest first, on what it reaches: [B, r g n, rows]."""
    n, width = _state(setting), setting.rank * setting.gates * setting.units
    keys = jax.random.split(jax.random.key(3), setting.layers)
    return [jax.random.normal(key, (setting.batch, width, n * (i + 1))) for i, key in enumerate(keys[::-1])][::-1]


def backward_products(setting: Setting, horizon: int, times: int) -> dict[str, Case]:
    """What rolling TBPTT cannot do without: δ D times Wₕᵀ at each of `horizon` steps, and the sum of all ĥ ⊗ δ D."""
    n, gates, rows = setting.units, setting.gates, setting.symbols + setting.units + 1
    keys = jax.random.split(jax.random.key(4), 3)
    weight = jax.random.normal(keys[0], (gates * n, n)) / n
    regressors = jax.random.normal(keys[1], (horizon, setting.batch, rows))

    def case(product, outer):
        def program(columns, weight, regressors):
            def back(i, columns):
                return columns.at[i, :, :n].set(product(columns[i - 1], weight))

            columns = jax.lax.fori_loop(1, horizon, back, columns)
            return columns.at[0, 0].add(1e-6 * outer(regressors, columns)[0])

        columns = jax.random.normal(keys[2], (horizon, setting.batch, gates * n))
        return in_place(program, columns, weight, regressors, times=times)

    cases = {"by XLA": case(jnp.matmul, lambda x, y: jnp.einsum("kbp,kbq->pq", x, y))}
    return cases | ({"by kernels": case(products.product, products.outer)} if native.available() else {})


def one_read(setting: Setting, window: int, times: int) -> Case:
    """δ·A once, for the influence of OK, and one look at every number of a full window: its steps, and their weights."""
    n, q, slots = setting.units, setting.gates * setting.units, max(0, 2 * window - 1)
    rows = setting.symbols + n + 1
    influence = jnp.ones((setting.batch, n, setting.rank * q), jnp.float32)
    remembered = jnp.ones(slots * (setting.batch * (rows + q + n) + rows * q), jnp.float32)

    def program(delta, influence, remembered):
        through = jnp.einsum("bm,bmq->bq", delta, influence)
        return delta + 1e-9 * (through[:, :n] + remembered.sum())

    return in_place(program, jnp.ones((setting.batch, n), jnp.float32), influence, remembered, times=times)


def one_pass(setting: Setting, times: int) -> Case:
    """One multiply-add over an array of batch x weights numbers, in place."""
    weights = (setting.symbols + setting.units + 1) * setting.gates * setting.units
    array = jnp.ones((setting.batch, weights), jnp.float32)
    return in_place(lambda a, x: a * x + x, array, jnp.float32(0.5), times=times)


def _multiply(a, p):
    return native.call("multiply", jax.ShapeDtypeStruct(a.shape, a.dtype), a, p, in_place=True)


def _each_stream(function, a, h):
    return jax.lax.fori_loop(0, len(a), lambda b, a: a.at[b].set(function(a[b], h[b])), a)


def _arrays(setting):
    n = setting.units
    a_key, h_key = jax.random.split(jax.random.key(3))
    a = jax.random.normal(a_key, (setting.batch, setting.rank * setting.gates * n, n))
    return a, _orthogonal(setting.batch, n, h_key)


def _orthogonal(batch, n, key=None):
    """Keeps the size of A, however often."""
    return jnp.linalg.qr(jax.random.normal(jax.random.key(5) if key is None else key, (batch, n, n)))[0]
