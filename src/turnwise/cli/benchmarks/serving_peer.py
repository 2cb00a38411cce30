"""The peer of `turnwise bench serve`: sentence-transformers behind a FastAPI handler, as it is usually written.

`python -m turnwise.cli.benchmarks.serving_peer MODEL sync|async` prints its address on standard error first.
"""

import json
import sys
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sentence_transformers import SentenceTransformer

from turnwise.serve.server import listen


def main(model: str, kind: str) -> None:
    """Serve a model on a free local port, with a handler that is `def` or `async def`."""
    encoder = SentenceTransformer(model)
    app = FastAPI()

    class EmbedRequestBody(BaseModel):
        inputs: list[str]

    def embed(body: EmbedRequestBody) -> dict[str, Any]:
        return {"vectors": encoder.encode(body.inputs, normalize_embeddings=True, show_progress_bar=False).tolist()}

    async def embed_in_loop(body: EmbedRequestBody) -> dict[str, Any]:
        return embed(body)

    app.post("/embed")(embed if kind == "sync" else embed_in_loop)
    listening = listen("127.0.0.1", 0)
    sys.stderr.write(json.dumps({"address": f"http://127.0.0.1:{listening.getsockname()[1]}/"}) + "\n")
    sys.stderr.flush()
    # its best case: no access log
    uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False)).run([listening])


if __name__ == "__main__":
    main(*sys.argv[1:3])
