"""Measuring: how noisy an estimator is, how far back a gradient looks, and what training layer by layer drops."""

from evergrad.lab.depth import Dropped as Dropped, dropped as dropped
from evergrad.lab.lags import reach as reach
from evergrad.lab.probes import Probed as Probed, probe as probe
from evergrad.lab.reached import Reach as Reach
