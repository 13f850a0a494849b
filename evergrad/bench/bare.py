"""What a step cannot do without: its matrix products, or its pass over its largest array, in the best form found.

The best form in XLA is one stream at a time and in place (see evergrad/_core/streamwise.py). Kernels, where they can be had, are
another, and whichever is faster counts.
"""

import jax
import jax.numpy as jnp

from evergrad import _native as native
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
    h, _ = jnp.linalg.qr(jax.random.normal(h_key, (setting.batch, n, n)))  # keeps the size of A, however often
    return a, h
