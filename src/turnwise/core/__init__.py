"""What every package shares: dialogues, model interfaces, errors, files, journals, progress, HTML pages and charts.

Imports no other package of turnwise.
"""
