"""The model turnwise-small-int8, loaded by its name: `turnwise.Encoder.load("turnwise-small-int8")`."""
