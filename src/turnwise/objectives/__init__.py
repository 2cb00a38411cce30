"""Training objectives, one method per file, and their loss functions.

May import `core`, `corpus` and `models`. An objective never touches devices, optimisers or files.
"""
