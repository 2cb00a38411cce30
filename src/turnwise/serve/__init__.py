"""The assistant over HTTP: a FastAPI application, what it holds, and how it is run."""
