"""The sample world: synthetic conversations in ten domains, one YAML file each, and labelled data sets."""
