"""Dynamic batching: every request gets its vectors, whichever requests share a pass."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.dialogue import Turn
from turnwise.serve.batching import BatchedEncoder, Batcher, EncodingResult, QueueFullError


class FakeComposer:
    """A composer that adds special tokens at both ends."""

    vocabulary = 200

    def text(self, tokens: np.ndarray, longest: int) -> np.ndarray:
        return np.concatenate([[1], tokens[: longest - 2], [2]]).astype(np.int32)


class FakeEncoder:
    """An encoder whose vectors are sums over tokens; it can be blocked, and made to fail."""

    hidden = 3
    max_length = 16
    normalise = False
    composer = FakeComposer()

    def __init__(self) -> None:
        self.passes: list[list[int]] = []
        self.go = threading.Event()
        self.go.set()
        self.started = threading.Event()
        self.failing: Exception | None = None
        self.threads: set[int] = set()

    def tokenise(self, items: Sequence, max_length: int | None = None) -> list[np.ndarray]:
        self.threads.add(threading.get_ident())
        longest = min(max_length or self.max_length, self.max_length)
        return [
            self.composer.text(np.array([ord(letter) % 100 for letter in text_of(item)], np.int32), longest)
            for item in items
        ]

    def encode_sequences(self, sequences, *, normalise=None, batch_tokens=None) -> np.ndarray:
        self.started.set()
        assert self.go.wait(10)
        self.threads.add(threading.get_ident())
        if self.failing is not None:
            error, self.failing = self.failing, None
            raise error
        self.passes.append([len(each) for each in sequences])
        return np.array([[each.sum(), len(each), each[0]] for each in sequences], np.float32)


def text_of(item) -> str:
    return item if isinstance(item, str) else "".join(turn.text for turn in item)


def expected(item, max_length: int = 16) -> np.ndarray:
    letters = [ord(letter) % 100 for letter in text_of(item)] if not isinstance(item, np.ndarray) else item.tolist()
    tokens = [1, *letters[: max_length - 2], 2]
    return np.array([sum(tokens), len(tokens), 1], np.float32)


requests = st.lists(
    st.tuples(
        st.lists(
            st.text("abcdef", max_size=20) | st.builds(lambda text: (Turn("user", text),), st.text("ab", min_size=1)),
            max_size=6,
        ),
        st.booleans(),
        st.sampled_from([None, 5]),
    ),
    min_size=1,
    max_size=8,
)


def run(encoder: FakeEncoder, work: Callable[[Batcher], Awaitable[Any]], **options: Any) -> Any:
    """Return the result of work with a batcher, which is closed afterwards."""

    async def main() -> Any:
        batcher = Batcher(encoder, **options)  # type: ignore[arg-type]
        try:
            return await work(batcher)
        finally:
            batcher.close()

    return asyncio.run(main())


async def encode_behind(batcher: Batcher, first: list[Any], *others: list[Any]) -> list["asyncio.Task[EncodingResult]"]:
    """Submit requests while the encoder is blocked with the first of them."""
    tasks = [asyncio.create_task(batcher.encode(first))]
    await asyncio.to_thread(batcher.encoder.started.wait, 10)  # type: ignore[attr-defined]
    tasks += [asyncio.create_task(batcher.encode(items)) for items in others]
    await asyncio.sleep(0)
    return tasks


@pytest.fixture
def blocked() -> FakeEncoder:
    encoder = FakeEncoder()
    encoder.go.clear()
    return encoder


@given(requests, st.integers(1, 60))
def test_requests_get_their_vectors(requested, budget: int) -> None:
    encoder, seen = FakeEncoder(), []

    async def encode(batcher: Batcher) -> list:
        return await asyncio.gather(
            *(batcher.encode(items, normalise=normalise, max_length=length) for items, normalise, length in requested)
        )

    answers = run(encoder, encode, batch_tokens=budget, observe=lambda *given: seen.append(given))
    for (items, normalise, length), answer in zip(requested, answers, strict=True):
        right = np.array([expected(item, length or 16) for item in items], np.float32).reshape(len(items), 3)
        assert answer.tokens == right[:, 1].sum()
        if normalise:
            right = right / np.linalg.norm(right, axis=1, keepdims=True)
        np.testing.assert_allclose(answer.vectors, right, rtol=1e-6)
    # everything is encoded once, and no pass exceeds the budget unless it has one sequence
    assert sum(map(len, encoder.passes)) == sum(len(items) for items, _, _ in requested)
    assert all(sum(each) <= budget or len(each) == 1 for each in encoder.passes)
    assert [texts for texts, _ in seen] == list(map(len, encoder.passes)) and all(seconds >= 0 for _, seconds in seen)


def test_concurrent_requests_share_a_pass(blocked: FakeEncoder) -> None:
    async def encode(batcher: Batcher) -> None:
        tasks = await encode_behind(batcher, ["first"], *([f"number {number}"] for number in range(20)))
        blocked.go.set()
        await asyncio.gather(*tasks)

    run(blocked, encode)
    assert [len(each) for each in blocked.passes] == [1, 20]


def test_small_request_does_not_wait_behind_a_large_one(blocked: FakeEncoder) -> None:
    async def encode(batcher: Batcher) -> None:
        tasks = await encode_behind(batcher, ["eight ch"] * 100, ["two"])
        blocked.go.set()
        await asyncio.gather(*tasks)

    run(blocked, encode, batch_tokens=40)
    # four texts of ten tokens fill a pass; the one of five is in the first possible pass
    assert [len(each) for each in blocked.passes[:2]] == [4, 4]
    assert blocked.passes[1].count(5) == 1
    assert len(blocked.passes) == 26


def test_full_queue(blocked: FakeEncoder) -> None:
    async def encode(batcher: Batcher) -> None:
        # a single request is accepted whatever its size
        first = asyncio.create_task(batcher.encode(["many"] * 30))
        await asyncio.sleep(0)
        assert batcher.waiting == 30
        with pytest.raises(QueueFullError) as refused:
            await batcher.encode(["one more"])
        assert refused.value.seconds >= 1
        blocked.go.set()
        await first
        assert batcher.waiting == 0
        await batcher.encode(["one more"])

    run(blocked, encode, queue_texts=10)
    assert sum(map(len, blocked.passes)) == 31


def test_expected_wait_grows_with_the_queue() -> None:
    async def encode(batcher: Batcher) -> None:
        await batcher.encode(["to learn the rate"])
        batcher._rate, batcher.waiting = 10.0, 95  # texts per second
        with pytest.raises(QueueFullError) as refused:
            await batcher.encode(["one more"])
        assert refused.value.seconds == 10

    run(FakeEncoder(), encode, queue_texts=10)


def test_cancelled_requests_are_not_encoded(blocked: FakeEncoder) -> None:
    async def encode(batcher: Batcher) -> None:
        first, dropped, waiting = await encode_behind(batcher, ["first"], ["dropped"] * 5, ["waiting"])
        dropped.cancel()
        await asyncio.sleep(0)
        assert batcher.waiting == 2
        blocked.go.set()
        await asyncio.gather(first, waiting)

    run(blocked, encode)
    assert [len(each) for each in blocked.passes] == [1, 1]


def test_failure_affects_only_its_pass() -> None:
    encoder = FakeEncoder()
    encoder.failing = RuntimeError("no memory")

    async def encode(batcher: Batcher) -> None:
        with pytest.raises(RuntimeError, match="no memory"):
            await batcher.encode(["first"])
        assert batcher.waiting == 0
        np.testing.assert_allclose((await batcher.encode(["second"], normalise=False)).vectors, [expected("second")])

    run(encoder, encode)


def test_tokenisation_errors() -> None:
    class Refusing(FakeEncoder):
        def tokenise(self, items, max_length=None):
            if "bad" in items:
                raise ValueError("cannot be read")
            return super().tokenise(items, max_length)

    async def encode(batcher: Batcher) -> None:
        with pytest.raises(ValueError, match="cannot be read"):
            await batcher.encode(["bad"])
        assert len((await batcher.encode(["good"])).vectors) == 1

    run(Refusing(), encode)


def test_close_finishes_queued_requests(blocked: FakeEncoder) -> None:
    async def main() -> list[EncodingResult]:
        batcher = Batcher(blocked, batch_tokens=20)  # type: ignore[arg-type]
        tasks = await encode_behind(batcher, *[["some text"] * 3] * 5)
        closing = asyncio.create_task(asyncio.to_thread(batcher.close))
        await asyncio.sleep(0.01)
        blocked.go.set()
        await closing
        return await asyncio.gather(*tasks)

    assert [len(each.vectors) for each in asyncio.run(main())] == [3] * 5


def test_token_ids() -> None:
    items = ["a text", np.array([7, 8, 9], np.int32), "another"]
    encoded = run(FakeEncoder(), lambda batcher: batcher.encode(items, normalise=False))
    np.testing.assert_allclose(encoded.vectors, [expected(item) for item in items])


def test_blocking_threads_share_passes() -> None:
    encoder = FakeEncoder()
    batcher = Batcher(encoder)
    batched = BatchedEncoder(batcher)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: batched.encode([f"text {number}", (Turn("user", "turn"),)]), range(40)))
    for number, vectors in enumerate(answers):
        np.testing.assert_allclose(vectors, [expected(f"text {number}"), expected("turn")])
    lengths = np.linalg.norm(batched.encode(["a", "b"], normalise=True), axis=1)
    np.testing.assert_allclose(lengths, 1, rtol=1e-6)
    assert batched.encode([]).shape == (0, 3)
    assert batched.hidden == 3
    batcher.close()
    assert len(encoder.threads) == 1


def test_blocking_threads_can_encode_few_texts_at_a_time() -> None:
    encoder = FakeEncoder()
    batcher = Batcher(encoder)
    texts = [f"text {number}" for number in range(7)]
    batched = BatchedEncoder(batcher, texts_per_job=3)
    np.testing.assert_allclose(batched.encode(texts), [expected(text) for text in texts])
    assert batched.encode([]).shape == (0, 3)
    batcher.close()
    assert [len(each) for each in encoder.passes] == [3, 3, 1]


def test_new_request_does_not_wait_behind_many_large_ones(blocked: FakeEncoder) -> None:
    async def encode(batcher: Batcher) -> None:
        first, *large = await encode_behind(batcher, ["first"], *[["eight ch"] * 30] * 40)
        blocked.go.set()
        await first
        await batcher.encode(["two"])
        assert not any(task.done() for task in large)
        await asyncio.gather(*large)

    run(blocked, encode, batch_tokens=40)


def test_abandoned_texts_are_not_even_tokenised(blocked: FakeEncoder) -> None:
    long = "a" * 20_000
    tokenised: list[Any] = []

    async def encode(batcher: Batcher) -> None:
        tokenise = batcher.encoder.tokenise
        batcher.encoder.tokenise = lambda items, length: tokenised.extend(items) or tokenise(items, length)
        first, dropped = await encode_behind(batcher, [long] * 100, [long] * 100)
        first.cancel()
        dropped.cancel()
        await asyncio.sleep(0)
        blocked.go.set()
        await batcher.encode(["another"])

    run(blocked, encode)
    assert len(tokenised) == 11
    assert [len(each) for each in blocked.passes] == [10, 1]


def test_large_requests_leave_room_in_the_queue(blocked: FakeEncoder) -> None:
    async def encode(batcher: Batcher) -> None:
        (first,) = await encode_behind(batcher, ["many"] * 290)
        with pytest.raises(QueueFullError):
            await batcher.encode(["many"] * 50)
        second = asyncio.create_task(batcher.encode(["few"] * 40))
        await asyncio.sleep(0)
        blocked.go.set()
        await asyncio.gather(first, second)

    run(blocked, encode, queue_texts=400)
