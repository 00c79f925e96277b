"""The HTTP application: routes, and nothing that the engine decides."""

import secrets
import time

from fastapi import FastAPI
from fastapi import Request as HttpRequest
from fastapi.responses import JSONResponse, Response, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException

from hisparse_runtime.engine.loop import EngineLoop, EngineState
from hisparse_runtime.engine.model_config import ModelConfig
from hisparse_runtime.engine.report import VERSION
from hisparse_runtime.engine.server.completions import ClientGoneError, Completion, Running, event_stream, whole_answer
from hisparse_runtime.engine.server.errors import ApiError
from hisparse_runtime.engine.server.metrics import make_registry
from hisparse_runtime.engine.server.protocol import max_output_tokens, parse_completion, prompt_tokens
from hisparse_runtime.scheduling import Request

# A prompt as token ids takes at most this many bytes a token in JSON; the rest of a body is small.
_BODY_BYTES_PER_TOKEN = 16
_BODY_BYTES = 1 << 16
_CLIENT_CLOSED_REQUEST = 499  # nginx's number; nobody reads it


def create_app(*, engine: EngineLoop, config: ModelConfig, model_name: str) -> FastAPI:
    app = FastAPI(title="hisparse", version=VERSION, docs_url=None, redoc_url=None, openapi_url=None)
    max_model_len = engine.settings.max_model_len
    max_body_bytes = _BODY_BYTES + max_model_len * _BODY_BYTES_PER_TOKEN

    @app.exception_handler(ApiError)
    async def api_error(_http: HttpRequest, error: ApiError) -> Response:
        return error.response()

    @app.exception_handler(HTTPException)
    async def http_error(http: HttpRequest, error: HTTPException) -> Response:
        return ApiError(f"{http.method} {http.url.path}: {error.detail}", status=error.status_code).response()

    @app.post("/v1/completions")
    async def completions(http: HttpRequest) -> Response:
        body = parse_completion(await _read_body(http, max_body_bytes))
        if body.model is not None and body.model != model_name:
            raise ApiError(
                f"model {body.model!r} is not served here, {model_name!r} is", status=404, param="model", code="model_not_found"
            )
        tokens = prompt_tokens(body, vocab_size=config.vocab_size)
        max_tokens = max_output_tokens(body, num_prompt_tokens=len(tokens), max_model_len=max_model_len)
        request = Request(
            request_id=secrets.token_hex(8),
            num_prompt_tokens=len(tokens),
            tokens=list(tokens),
            max_tokens=max_tokens,
            stop_tokens=frozenset() if body.ignore_eos else config.eos_token_ids,
        )
        running = Running(engine=engine, request=request)
        running.submit()
        completion = Completion(model=model_name, num_prompt_tokens=len(tokens))
        if body.stream:
            include_usage = body.stream_options is not None and body.stream_options.include_usage
            return StreamingResponse(
                event_stream(running, completion, include_usage=include_usage), media_type="text/event-stream"
            )
        try:
            return JSONResponse(await whole_answer(running, completion, http))
        except ClientGoneError:
            return Response(status_code=_CLIENT_CLOSED_REQUEST)

    _add_views(app, engine=engine, model_name=model_name)
    return app


def _add_views(app: FastAPI, *, engine: EngineLoop, model_name: str) -> None:
    """Everything that only reads."""
    registry = make_registry(engine=engine, model_name=model_name)
    created_seconds = int(time.time())

    @app.get("/v1/models")
    async def models() -> dict[str, object]:
        card = {
            "id": model_name,
            "object": "model",
            "created": created_seconds,
            "owned_by": "hisparse",
            "max_model_len": engine.settings.max_model_len,
        }
        return {"object": "list", "data": [card]}

    @app.get("/health")
    async def health() -> Response:
        content = {"status": engine.state.value} | ({"reason": engine.failure} if engine.failure else {})
        return JSONResponse(content, status_code=200 if engine.state is EngineState.SERVING else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/hisparse/residency")
    async def residency() -> dict[str, object]:
        return engine.report.as_json(model=model_name, uptime_seconds=engine.uptime_seconds)


async def _read_body(http: HttpRequest, max_body_bytes: int) -> bytes:
    body = bytearray()
    async for chunk in http.stream():
        body += chunk
        if len(body) > max_body_bytes:
            raise ApiError(f"the body is larger than {max_body_bytes} bytes, which the longest prompt does not need", status=413)
    return bytes(body)
