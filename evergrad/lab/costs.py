"""Multiply-adds of an estimator, of one stream and one step, beyond the forward pass. Leading terms, folds shared out.

n units, m state variables, q = g·n gates, p regressors; see docs/notation.md.
"""

from evergrad.cells.base import KroneckerCell
from evergrad.checks import InputError
from evergrad.estimators import KF, KTP, OK, RTRL, TBPTT, UORO, Estimator


def multiply_adds(estimator: Estimator, cell: KroneckerCell) -> int:
    n, m, (p, q) = cell.units, cell.units * cell.states, cell.weight.shape
    k = estimator.window
    back = n * q + p * q  # one remembered step: δH and δF
    if isinstance(estimator, TBPTT):
        return estimator.horizon * back // estimator.stride
    carry_back = int(1.5 * k) * back  # k to 2k − 1 steps are remembered
    return carry_back + _fold(estimator, n, m, p, q, k) + _contract(estimator, m, p, q)


def _fold(estimator, n, m, p, q, k):
    suffixes = n * m * m if k else n * q  # H as a matrix, and its products over the window
    if isinstance(estimator, RTRL):
        return suffixes + m * m * p * q // max(1, k) + m * p * q
    if isinstance(estimator, OK):
        r, block = estimator.rank, max(1, k)
        gram_and_mix = ((r + block) ** 2 + r * (r + block)) * q * m
        return suffixes + (r * q * m * m + gram_and_mix) // block
    if isinstance(estimator, KF):
        return n * q + estimator.copies * (q * n * m + 3 * q * m)
    if isinstance(estimator, KTP):
        return estimator.rank * (n * q + 3 * (p + m + q))
    if isinstance(estimator, UORO):
        return n * q + 4 * p * q
    raise InputError(f"the cost of {type(estimator).__name__} is not known here.")


def _contract(estimator, m, p, q):
    """δ times the influence."""
    if isinstance(estimator, RTRL):
        return m * p * q
    if isinstance(estimator, OK):
        return estimator.rank * (m * q + p * q)
    if isinstance(estimator, KF):
        return estimator.copies * (m * q + p * q)
    if isinstance(estimator, KTP):
        return estimator.rank * (m + q + p * q)
    return p * q
