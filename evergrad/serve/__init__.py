"""A stream learner behind HTTP, that a kill does not make forget. Needs `pip install evergrad[serve]`."""

try:
    import fastapi as _fastapi  # noqa: F401
    import uvicorn as _uvicorn  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"evergrad.serve needs FastAPI and uvicorn, and {error.name} is not installed: pip install 'evergrad[serve]'."
    ) from error

from evergrad.serve.app import Limits as Limits, make_app as make_app
from evergrad.serve.engine import Engine as Engine
from evergrad.serve.keeper import Keeper as Keeper
