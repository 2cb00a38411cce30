"""Intent detection with abstention: a classifier learnt from a few examples per intent, its storage and its report."""
