"""Applications: intents, responses, conversations, maps, labelling and search."""
