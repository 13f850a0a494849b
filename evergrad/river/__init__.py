"""Recurrent learners in river's conventions. Needs `pip install evergrad[river]`."""

try:
    import pandas as _pandas  # noqa: F401
    import river as _river  # noqa: F401
    import safetensors as _safetensors  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"evergrad.river needs river, pandas and safetensors, and {error.name} is not installed: "
        "pip install 'evergrad[river]'."
    ) from error

from evergrad.river.classifier import OnlineRNNClassifier as OnlineRNNClassifier
from evergrad.river.detector import AnomalyDetector as AnomalyDetector
from evergrad.river.forecaster import OnlineRNNForecaster as OnlineRNNForecaster
from evergrad.river.forks import ForkedError as ForkedError
from evergrad.river.multi import OnlineRNNMultiTargetRegressor as OnlineRNNMultiTargetRegressor
from evergrad.river.pool import OnlineRNNPool as OnlineRNNPool
from evergrad.river.regressor import OnlineRNNRegressor as OnlineRNNRegressor
