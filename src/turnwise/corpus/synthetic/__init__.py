"""The content of the sample world: one file a domain, and what all of them share."""
