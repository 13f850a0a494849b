"""Tries one part of an installed evergrad in a few seconds: `python smoke.py core`, or the name of an extra.

`--list` prints the parts. It runs in an environment that has this part only, outside of the repository, so that what is
missing in the wheel, or in an extra's list, is noticed. `cuda` needs an accelerator and is not among them.
"""

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

RUN = ("train", "copy", "--units", "4", "--batch", "2", "--rank", "2", "--steps", "20", "--report", "10")


def core(place):
    """The ten lines, and nothing there that only an extra brings."""
    _learned()
    for module in ("typer", "rich", "orbax", "matplotlib", "river", "onnx", "flax", "pyarrow", "tensorboardX"):
        assert importlib.util.find_spec(module) is None, f"{module} is there though nobody asked for it"


def cli(place):
    _evergrad(place, *RUN, "--out", "run")
    _evergrad(place, "resume", "run", "--steps", "30")
    assert "30" in _evergrad(place, "info", "run")
    assert (place / "run" / "plot.png").read_bytes().startswith(b"\x89PNG")
    _evergrad(place, "lab", "noise", "--steps", "10", "--repetitions", "2", "--estimator", "uoro", "--out", "noise")


def river(place):
    from evergrad.river import OnlineRNNRegressor

    model = OnlineRNNRegressor()
    for t in range(20):
        model.predict_one({"x": t % 3})
        model.learn_one({"x": t % 3}, float(t % 2))
    assert isinstance(model.predict_one({"x": 1.0}), float)


def export(place):
    from evergrad.export import export_onnx, export_safetensors, import_onnx, import_safetensors

    model = _learned()
    for out, back, name in (
        (export_onnx, import_onnx, "m.onnx"),
        (export_safetensors, import_safetensors, "m.safetensors"),
    ):
        out(model, place / name)
        back(place / name)


def flax(place):
    from flax import nnx

    import evergrad as eg

    cell = eg.from_flax(nnx.GRUCell(3, 4, rngs=nnx.Rngs(0)))
    assert (cell.inputs, cell.units) == (3, 4)


def tensorboard(place):
    import tensorboardX

    assert tensorboardX.SummaryWriter(str(place / "events"))


def parquet(place):
    import pyarrow.parquet

    table = pyarrow.table({"a": [0.0, 1.0]})
    pyarrow.parquet.write_table(table, place / "a.parquet")
    assert pyarrow.parquet.read_table(place / "a.parquet").num_rows == 2


def serve(place):
    """What it is made of is there, its page too."""
    import uvicorn

    from evergrad.serve.app import make_app

    assert callable(make_app)
    assert uvicorn.run
    assert (Path(sys.modules["evergrad.serve"].__file__).parent / "page.html").stat().st_size > 100
    assert "serve" in _evergrad(place, "serve", "--help")


def everything(place):
    """What needs two extras: a series from a Parquet file, with TensorBoard."""
    import numpy as np
    import pyarrow.parquet

    for part in (cli, river, export, flax, serve):
        part(place)
    table = pyarrow.table({"a": np.sin(np.arange(200.0))})
    pyarrow.parquet.write_table(table, place / "wave.parquet")
    series = ("train", "series", "--data", "wave.parquet", "--units", "4", "--rank", "2", "--tensorboard")
    _evergrad(place, *series, "--out", "series")
    assert [*(place / "series" / "tensorboard").glob("events.*")]


PARTS = {each.__name__: each for each in (core, cli, river, export, flax, tensorboard, parquet, serve)} | {
    "all": everything
}


def _learned():
    import jax
    import numpy as np
    import optax

    import evergrad as eg

    one, two, three = jax.random.split(jax.random.key(0), 3)
    model = eg.Model(eg.LSTM(inputs=3, units=4, key=one), eg.Softmax(units=4, classes=3, key=two))
    learner = eg.Learner(model, eg.OK(rank=2, window=3), optax.adam(1e-2), clip=1.0)
    symbols = np.arange(41)[:, None] % 3
    state, out = learner.run(learner.init(batch=1, key=three), symbols[:-1], symbols[1:])
    assert np.isfinite(out.losses).all()
    return state.model


def _evergrad(place, *words):
    done = subprocess.run([sys.executable, "-m", "evergrad", *words], cwd=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def main(name):
    if name == "--list":
        print(*PARTS)
        return
    with tempfile.TemporaryDirectory() as place:
        PARTS[name](Path(place))
    print(f"{name}: works")


if __name__ == "__main__":
    main(*sys.argv[1:])
