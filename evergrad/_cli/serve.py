"""`evergrad serve`: a stream learner behind HTTP."""

import os
from pathlib import Path
from typing import Annotated

import typer

from evergrad._cli.errors import explained

TOKEN = "EVERGRAD_TOKEN"
KINDS = ("regressor", "classifier", "pool")


def serve(
    model: Annotated[
        Path | None,
        typer.Argument(help="A file that `save` of a model of evergrad.river wrote; not needed with --new."),
    ] = None,
    new: Annotated[str | None, typer.Option(help="Begin with a new one: regressor, classifier or pool.")] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            help="Folder for checkpoints and the journal; MODEL with .state behind it. It is gone on with if it exists."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 8000,
    checkpoint_every: Annotated[int, typer.Option(help="Samples from one checkpoint to the next.", min=1)] = 10_000,
    max_body: Annotated[int, typer.Option(help="Bytes of a request that are taken at the most.", min=1)] = 1 << 20,
) -> None:
    """Serve a stream learner: POST /predict, /learn and /predict_and_learn, GET /metrics, /report, /healthz, and a page at /.

    Whoever was answered is not forgotten, whenever the service is killed. If the environment has EVERGRAD_TOKEN, requests
    must have it: Authorization: Bearer TOKEN.

    Example: evergrad serve --new regressor --state runs/service
    """
    with explained():
        import uvicorn

        from evergrad.serve import Engine, Keeper, Limits, make_app

        first, folder = _first(model, new), _folder(model, state)
        keeper = Keeper(folder, first=first, every=checkpoint_every)
        print(f"{type(keeper.model).__name__} after {keeper.number:,} changes, kept in {folder}")
        engine = Engine(keeper)
        app = make_app(engine, token=os.environ.get(TOKEN) or None, limits=Limits(body=max_body))
        uvicorn.run(app, host=host, port=port, log_level="warning", access_log=False)
        engine.check()


def _folder(model, state):
    from evergrad._core.checks import InputError

    if state is None and model is None:
        raise InputError("a new model needs a place: give --state FOLDER.")
    return state if state is not None else model.with_name(f"{model.name}.state")


def _first(model, new):
    from evergrad import river
    from evergrad._core.checks import refuse_unless
    from evergrad.river.saving import load_any

    refuse_unless((model is None) != (new is None), "give MODEL, or --new regressor, classifier or pool; one of them.")
    if model is not None:
        refuse_unless(model.is_file(), f"{model} is not a file: pass the path that was given to save, or use --new.")
        return lambda: load_any(model)
    refuse_unless(new in KINDS, f"--new {new}: choose one of {', '.join(KINDS)}.")
    return {
        "regressor": river.OnlineRNNRegressor,
        "classifier": river.OnlineRNNClassifier,
        "pool": river.OnlineRNNPool,
    }[new]
