"""The transformer: any Hugging Face encoder, run over a flat stream of tokens with no padding, and pooled."""
