"""Measuring: how noisy an estimator is, what bounds its error, how far back a gradient looks, and what layerwise training drops."""

from evergrad._core.probes import Probed as Probed, probe as probe
from evergrad.lab.certificates import Certificate as Certificate, certificate as certificate
from evergrad.lab.depth import Dropped as Dropped, dropped as dropped
from evergrad.lab.lags import reach as reach
from evergrad.lab.reached import Reach as Reach
