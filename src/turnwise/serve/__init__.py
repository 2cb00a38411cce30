"""The HTTP service (FastAPI) and its web page; may import `assist` and the packages below it."""
