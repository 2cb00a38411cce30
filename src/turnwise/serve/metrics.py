"""What the service counts, for Prometheus."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from turnwise.serve.batching import Pass

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_POWERS = tuple(float(2**power) for power in range(13))


class Metrics:
    """Counters of one application."""

    def __init__(self, waiting: Callable[[], float], is_ready: Callable[[], float]):
        """Takes what tells how many texts wait, and whether the service is ready."""
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "turnwise_requests", "Requests that were answered.", ("method", "path", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "turnwise_request_seconds", "How long answers took.", ("path",), buckets=_SECONDS, registry=self._registry
        )
        self._texts = Counter("turnwise_texts", "Texts that were read.", registry=self._registry)
        self._tokens = Counter("turnwise_tokens", "Tokens that were read.", registry=self._registry)
        self._passes = Histogram(
            "turnwise_pass_seconds", "How long forward passes took.", buckets=_SECONDS, registry=self._registry
        )
        self._pass_texts = Histogram(
            "turnwise_pass_texts", "Texts that shared a forward pass.", buckets=_POWERS, registry=self._registry
        )
        self.refused = Counter("turnwise_refused", "Requests refused because too much waited.", registry=self._registry)
        self.reloads = Counter("turnwise_reloads", "Reloads.", ("outcome",), registry=self._registry)
        Gauge("turnwise_waiting_texts", "Texts that wait to be encoded.", registry=self._registry).set_function(waiting)
        Gauge("turnwise_ready", "1 where requests are answered.", registry=self._registry).set_function(is_ready)

    def request(self, method: str, path: str, status: int, seconds: float, texts: int, tokens: int) -> None:
        """Counts a request."""
        self._requests.labels(method, path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)
        if texts:
            self._texts.inc(texts)
        if tokens:
            self._tokens.inc(tokens)

    def forward_pass(self, done: Pass) -> None:
        """Counts a forward pass."""
        self._passes.observe(done.seconds)
        self._pass_texts.observe(done.sequences)

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self._registry)
