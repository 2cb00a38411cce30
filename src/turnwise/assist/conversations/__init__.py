"""Search and clustering of whole conversations.

May import `assist.search` and `assist.map`, and `evaluation` and the packages below it.
"""
