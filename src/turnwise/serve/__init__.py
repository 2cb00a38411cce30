"""The HTTP service (FastAPI) and its web page.

May import `assist` and the packages below it.
"""
