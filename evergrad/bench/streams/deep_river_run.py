"""deep-river's rolling LSTM on streams from a JSON file: run by its own Python, which needs nothing of evergrad.

python deep_river_run.py streams.json results.json validate.py SEED
"""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import torch
from deep_river.classification import LSTMClassifier
from deep_river.regression import LSTMRegressor
from river import preprocessing


def main(streams, results, module, seed):
    spec: Any = importlib.util.spec_from_file_location("validate", module)
    validate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(validate)
    torch.set_num_threads(1)
    found = []
    for s in json.loads(Path(streams).read_text()):
        torch.manual_seed(seed)
        settings = {"n_features": len(s["features"][0]), "hidden_size": 32, "seed": seed}
        kind = LSTMClassifier(is_class_incremental=True, **settings) if s["classes"] else LSTMRegressor(**settings)
        model = preprocessing.StandardScaler() | kind
        model = model if s["classes"] else preprocessing.TargetStandardScaler(regressor=model)
        predictions, seconds = validate.validate(model, s["features"], s["targets"], s["delay"])
        error = validate.error(predictions, s["targets"], s["first"], s["classes"])
        sizes = sum(p.numel() * p.element_size() for p in kind.module.parameters()) * 3  # weights, two moments of Adam
        found.append({"name": s["name"], "error": error, "seconds": seconds, "bytes": sizes})
    Path(results).write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
