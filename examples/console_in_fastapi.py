"""The console inside a web back end (FastAPI), at /kafka, for users whom the service knows.

KAFKA=localhost:9092 OPERATORS=ann,bob uvicorn console_in_fastapi:app
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator

from fastapi import FastAPI, Request

from aiokafka08 import console as kafka_console


def is_operator(request: Request) -> bool:
    """Say who may look: put here how your service knows its users, such as by its session."""
    return request.headers.get("X-User") in os.environ.get("OPERATORS", "").split(",")


console = kafka_console.app(
    authorize=is_operator,
    title="orders",
    bootstrap_servers=os.environ.get("KAFKA", "localhost:9092"),
    zookeeper_connect=os.environ.get("ZOOKEEPER"),
)


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Run the console as long as the service: a mounted application isn't run by the server."""
    async with console:
        yield


app = FastAPI(lifespan=lifespan)
app.mount("/kafka", console)
