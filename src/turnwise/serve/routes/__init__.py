"""The routes of the service, one module per subject. May import everything in `serve` except `app` and `server`."""
