"""Progressive validation: predict, then learn, each sample timed. Nothing here but the standard library.

deep-river runs this in an environment of its own.
"""

import pickle
import time


def validate(model, features, targets, delay):
    """Predictions, and the seconds that predicting and learning took, of every sample.

    A target is learned `delay` samples later, before the next prediction.
    """
    predictions, seconds = [], []
    for t, x in enumerate(features):
        start = time.perf_counter()
        if delay and t >= delay:
            model.learn_one(features[t - delay], targets[t - delay])
        predictions.append(model.predict_one(x))
        if not delay:
            model.learn_one(x, targets[t])
        seconds.append(time.perf_counter() - start)
    return predictions, seconds


def error(predictions, targets, first, classes):
    """Mean absolute error, or the share of wrong labels, from sample `first` on."""
    pairs = list(zip(predictions, targets, strict=True))[first:]
    return sum((p != y) if classes else abs(p - y) for p, y in pairs) / len(pairs)


def size(model):
    """Bytes of the whole model, pickled: the same measure for all."""
    return len(pickle.dumps(model))
