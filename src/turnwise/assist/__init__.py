"""Applications: intents, responses, conversations, maps, labelling and search.

May import `papers` and the packages below it.
"""
