"""From a map to labels: groups that people name, merge, split and correct."""
