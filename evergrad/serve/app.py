"""The doors of the service: JSON over HTTP, bounded in size, with a token if there is one."""

import asyncio
import contextlib
import hmac
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from pydantic import BaseModel, ConfigDict, Field

from evergrad._core.checks import DivergedError, InputError
from evergrad.serve import metrics
from evergrad.serve.engine import Busy, Engine

PAGE = Path(__file__).with_name("page.html")
Feature = float | int | str | bool | None


class Limits(NamedTuple):
    """Of one request."""

    body: int = 1 << 20  # bytes
    samples: int = 10_000


class Question(BaseModel):
    """Features by name; null is a missing value. Whose they are, for a pool."""

    model_config = ConfigDict(extra="forbid")
    x: dict[str, Feature]
    key: str | int | None = None


class Sample(Question):
    """Features and what is to be learned of them; null where the target is missing."""

    y: float | int | str | bool | None


class Questions(BaseModel):
    model_config = ConfigDict(extra="forbid")
    samples: Annotated[list[Question], Field(min_length=1)]


class Samples(BaseModel):
    model_config = ConfigDict(extra="forbid")
    samples: Annotated[list[Sample], Field(min_length=1)]


def make_app(engine: Engine, *, token: str | None = None, limits: Limits = Limits()) -> FastAPI:  # noqa: B008
    """The service of an engine, which stops with it. With a `token`, all but /healthz and the page's frame ask for it."""

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(engine.stop)

    app = FastAPI(title="evergrad", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_middleware(Bounded, most=limits.body)
    asked = [Depends(_asks_for(token))]

    @app.post("/predict", dependencies=asked)
    async def predict(question: Question | Questions) -> JSONResponse:
        return await _answered(engine, "predict", question, limits)

    @app.post("/learn", dependencies=asked)
    async def learn(sample: Sample | Samples) -> JSONResponse:
        return await _answered(engine, "learn", sample, limits)

    @app.post("/predict_and_learn", dependencies=asked)
    async def predict_and_learn(sample: Sample | Samples) -> JSONResponse:
        return await _answered(engine, "predict_and_learn", sample, limits)

    @app.get("/metrics", dependencies=asked, response_class=PlainTextResponse)
    async def prometheus() -> str:
        return await asyncio.to_thread(metrics.prometheus, engine)

    @app.get("/report", dependencies=asked)
    async def report() -> JSONResponse:
        return JSONResponse(await asyncio.to_thread(metrics.report, engine))

    @app.get("/healthz")
    async def healthz() -> JSONResponse:
        return JSONResponse({"well": engine.well}, status_code=200 if engine.well else 503)

    @app.get("/", response_class=HTMLResponse)
    async def page() -> str:
        return PAGE.read_text("utf-8")

    return app


async def _answered(engine: Engine, action: str, asked: Any, limits: Limits) -> JSONResponse:
    many = isinstance(asked, Questions | Samples)
    found = asked.samples if many else [asked]
    if len(found) > limits.samples:
        raise HTTPException(413, f"{len(found):,} samples in one request; at most {limits.samples:,} are taken.")
    samples = [(each.x, getattr(each, "y", None), each.key) for each in found]
    loop = asyncio.get_running_loop()
    future: asyncio.Future = loop.create_future()

    def answer(predictions, error):
        loop.call_soon_threadsafe(_settle, future, predictions, error)

    try:
        engine.submit(action, samples, answer)
        predictions, error = await future
    except Busy as busy:
        raise HTTPException(503, str(busy), headers={"Retry-After": "1"}) from None
    return _response(predictions, error, many)


def _settle(future, predictions, error):
    if not future.done():
        future.set_result((predictions, error))


def _response(predictions, error, many):
    if isinstance(error, InputError | DivergedError | ValueError | TypeError):
        done = len(predictions or ())
        return JSONResponse({"error": str(error), "done": done, "predictions": _named(predictions or [])}, 422)
    if error is not None:
        return JSONResponse({"error": f"{type(error).__name__}: {error}"}, 500)
    return JSONResponse({"predictions": _named(predictions)} if many else {"prediction": _named(predictions)[0]})


def _named(predictions: list[Any]) -> list[Any]:
    """Chances by the names of their classes, since JSON has no other keys; what is no finite number is null."""

    def number(value):
        return value if value is None or math.isfinite(value) else None

    return [
        {str(label): number(float(p)) for label, p in each.items()} if isinstance(each, dict) else number(each)
        for each in predictions
    ]


def _asks_for(token):
    async def check(request: Request) -> None:  # else FastAPI would hand it to a thread
        if token is None:
            return
        said = request.headers.get("authorization", "")
        if not hmac.compare_digest(said.encode(), f"Bearer {token}".encode()):
            raise HTTPException(401, "this service asks for its token: Authorization: Bearer …")

    return check


class Bounded:
    """Refuses bodies of more than so many bytes, said or sent."""

    def __init__(self, app: Any, most: int):
        self.app, self.most = app, most

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        said = dict(scope["headers"]).get(b"content-length", b"0")
        if not said.isdigit() or int(said) > self.most:
            return await self._refusal()(scope, receive, send)
        seen = 0

        async def counted():
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self.most:
                raise HTTPException(413, self._why())
            return message

        await self.app(scope, counted, send)

    def _why(self):
        return f"a body of more than {self.most:,} bytes is not taken: send fewer samples at a time."

    def _refusal(self):
        return JSONResponse({"detail": self._why()}, 413)
