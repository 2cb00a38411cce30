"""Dynamic batching: every request gets its vectors, whichever requests share a pass."""

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.dialogue import Turn
from turnwise.serve.batching import BatchedEncoder, Batcher, ForwardPass, QueueFullError


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


@given(requests, st.integers(1, 60))
def test_requests_get_their_vectors(requested, budget: int) -> None:
    encoder, seen = FakeEncoder(), []

    async def run() -> list:
        batcher = Batcher(encoder, batch_tokens=budget, observe=seen.append)
        try:
            return await asyncio.gather(
                *(
                    batcher.encode(items, normalise=normalise, max_length=length)
                    for items, normalise, length in requested
                )
            )
        finally:
            batcher.close()

    answers = asyncio.run(run())
    for (items, normalise, length), answer in zip(requested, answers, strict=True):
        right = np.array([expected(item, length or 16) for item in items], np.float32).reshape(len(items), 3)
        assert answer.tokens == right[:, 1].sum()
        if normalise:
            right = right / np.linalg.norm(right, axis=1, keepdims=True)
        np.testing.assert_allclose(answer.vectors, right, rtol=1e-6)
    # everything is encoded once, and no pass exceeds the budget unless it has one sequence
    assert sum(map(len, encoder.passes)) == sum(len(items) for items, _, _ in requested)
    assert all(sum(each) <= budget or len(each) == 1 for each in encoder.passes)
    assert [(each.sequences, each.tokens) for each in seen] == [(len(each), sum(each)) for each in encoder.passes]
    assert all(isinstance(each, ForwardPass) and each.seconds >= 0 for each in seen)


def test_concurrent_requests_share_a_pass() -> None:
    encoder = FakeEncoder()
    encoder.go.clear()

    async def run() -> None:
        batcher = Batcher(encoder)
        first = asyncio.create_task(batcher.encode(["first"]))
        await asyncio.to_thread(encoder.started.wait, 10)
        others = [asyncio.create_task(batcher.encode([f"number {number}"])) for number in range(20)]
        await asyncio.sleep(0)
        encoder.go.set()
        await asyncio.gather(first, *others)
        batcher.close()

    asyncio.run(run())
    assert [len(each) for each in encoder.passes] == [1, 20]


def test_small_request_does_not_wait_behind_a_large_one() -> None:
    encoder = FakeEncoder()
    encoder.go.clear()

    async def run() -> None:
        batcher = Batcher(encoder, batch_tokens=40)
        large = asyncio.create_task(batcher.encode(["eight ch"] * 100))
        await asyncio.to_thread(encoder.started.wait, 10)
        small = asyncio.create_task(batcher.encode(["two"]))
        await asyncio.sleep(0)
        encoder.go.set()
        await asyncio.gather(large, small)
        batcher.close()

    asyncio.run(run())
    # four texts of ten tokens fill a pass; the one of five is in the first possible pass
    assert [len(each) for each in encoder.passes[:2]] == [4, 4]
    assert encoder.passes[1].count(5) == 1
    assert len(encoder.passes) == 26


def test_full_queue() -> None:
    encoder = FakeEncoder()
    encoder.go.clear()

    async def run() -> None:
        batcher = Batcher(encoder, queue_texts=10)
        # a single request is accepted whatever its size
        first = asyncio.create_task(batcher.encode(["many"] * 30))
        await asyncio.sleep(0)
        assert batcher.waiting == 30
        with pytest.raises(QueueFullError) as refused:
            await batcher.encode(["one more"])
        assert refused.value.seconds >= 1
        encoder.go.set()
        await first
        assert batcher.waiting == 0
        await batcher.encode(["one more"])
        batcher.close()

    asyncio.run(run())
    assert sum(map(len, encoder.passes)) == 31


def test_expected_wait_grows_with_the_queue() -> None:
    encoder = FakeEncoder()

    async def run() -> None:
        batcher = Batcher(encoder)
        await batcher.encode(["to learn the rate"])
        batcher._rate = 10.0  # texts per second
        batcher.waiting = 95
        assert batcher.expected_wait() == 10
        batcher.close()

    asyncio.run(run())


def test_cancelled_requests_are_not_encoded() -> None:
    encoder = FakeEncoder()
    encoder.go.clear()

    async def run() -> None:
        batcher = Batcher(encoder)
        first = asyncio.create_task(batcher.encode(["first"]))
        await asyncio.to_thread(encoder.started.wait, 10)
        dropped = asyncio.create_task(batcher.encode(["dropped"] * 5))
        waiting = asyncio.create_task(batcher.encode(["waiting"]))
        await asyncio.sleep(0)
        dropped.cancel()
        await asyncio.sleep(0)
        assert batcher.waiting == 2
        encoder.go.set()
        await asyncio.gather(first, waiting)
        batcher.close()

    asyncio.run(run())
    assert [len(each) for each in encoder.passes] == [1, 1]


def test_failure_affects_only_its_pass() -> None:
    encoder = FakeEncoder()
    encoder.failing = RuntimeError("no memory")

    async def run() -> None:
        batcher = Batcher(encoder)
        with pytest.raises(RuntimeError, match="no memory"):
            await batcher.encode(["first"])
        assert batcher.waiting == 0
        np.testing.assert_allclose((await batcher.encode(["second"], normalise=False)).vectors, [expected("second")])
        batcher.close()

    asyncio.run(run())


def test_tokenisation_errors() -> None:
    class Refusing(FakeEncoder):
        def tokenise(self, items, max_length=None):
            if "bad" in items:
                raise ValueError("cannot be read")
            return super().tokenise(items, max_length)

    async def run() -> None:
        batcher = Batcher(Refusing())
        with pytest.raises(ValueError, match="cannot be read"):
            await batcher.encode(["bad"])
        assert len((await batcher.encode(["good"])).vectors) == 1
        batcher.close()

    asyncio.run(run())


def test_close_finishes_queued_requests() -> None:
    encoder = FakeEncoder()
    encoder.go.clear()

    async def run() -> list:
        batcher = Batcher(encoder, batch_tokens=20)
        tasks = [asyncio.create_task(batcher.encode(["some text"] * 3)) for _ in range(5)]
        await asyncio.to_thread(encoder.started.wait, 10)
        closing = asyncio.create_task(asyncio.to_thread(batcher.close))
        await asyncio.sleep(0.01)
        encoder.go.set()
        await closing
        return await asyncio.gather(*tasks)

    assert [len(each.vectors) for each in asyncio.run(run())] == [3] * 5


def test_token_ids() -> None:
    encoder = FakeEncoder()
    tokens = np.array([7, 8, 9], np.int32)

    async def run():
        batcher = Batcher(encoder)
        encoded = await batcher.encode(["a text", tokens, "another"], normalise=False)
        batcher.close()
        return encoded

    np.testing.assert_allclose(asyncio.run(run()).vectors, [expected("a text"), expected(tokens), expected("another")])


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
