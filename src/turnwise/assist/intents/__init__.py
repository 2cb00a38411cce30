"""Intent detection with abstention: a classifier learnt from a few examples per intent, its storage and its report.

May import `assist.search` and the layers below `assist`.
"""
