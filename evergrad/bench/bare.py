"""What a step cannot do without: its matrix products, or its pass over its largest array, in the best form found.

The best form in XLA is one stream at a time and in place (see evergrad/_core/streamwise.py). Kernels, where they can be had, are
another, and whichever is faster counts.
"""

import jax
import jax.numpy as jnp

from evergrad import _native as native
from evergrad.bench.settings import Setting
from evergrad.bench.timing import Case, in_place

GATES = 2  # of an RHN


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


def one_pass(setting: Setting, times: int) -> Case:
    """One multiply-add over an array of batch x weights numbers, in place."""
    weights = (setting.symbols + setting.units + 1) * GATES * setting.units
    array = jnp.ones((setting.batch, weights), jnp.float32)
    return in_place(lambda a, x: a * x + x, array, jnp.float32(0.5), times=times)


def _multiply(a, p):
    return native.call("multiply", jax.ShapeDtypeStruct(a.shape, a.dtype), a, p, in_place=True)


def _each_stream(function, a, h):
    return jax.lax.fori_loop(0, len(a), lambda b, a: a.at[b].set(function(a[b], h[b])), a)


def _arrays(setting):
    n = setting.units
    a_key, h_key = jax.random.split(jax.random.key(3))
    a = jax.random.normal(a_key, (setting.batch, setting.rank * GATES * n, n))
    h, _ = jnp.linalg.qr(jax.random.normal(h_key, (setting.batch, n, n)))  # keeps the size of A, however often
    return a, h
