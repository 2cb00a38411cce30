"""Random dialogues for property tests."""

from hypothesis import strategies as st

from turnwise import Dialogue, Slot, Turn

TEXTS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=40).filter(
    lambda text: text.strip() == text and text != ""
)
NAMES = st.text("abcdef_", min_size=1, max_size=6)


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    text = draw(TEXTS)
    slots = []
    for _ in range(draw(st.integers(0, 2))):
        start = draw(st.integers(0, len(text) - 1))
        slots.append(Slot.from_text(text, draw(NAMES), start, draw(st.integers(start + 1, len(text)))))
    slots.sort(key=lambda slot: (slot.start, slot.end, slot.name))
    speaker = draw(st.sampled_from(["user", "system", "speaker_1", "speaker_2", "speaker_3"]))
    intent = draw(st.none() | NAMES)
    return Turn(speaker, text, intent, tuple(draw(st.lists(NAMES, max_size=3))), tuple(slots))


@st.composite
def dialogues(draw: st.DrawFn) -> Dialogue:
    split = draw(st.sampled_from([None, "train", "valid", "test"]))
    conversation = tuple(draw(st.lists(turns(), min_size=1, max_size=6)))
    return Dialogue(f"d{draw(st.integers(0, 10**9))}", conversation, draw(st.none() | NAMES), split)


def corpora(size: int = 20) -> st.SearchStrategy[list[Dialogue]]:
    return st.lists(dialogues(), min_size=1, max_size=size, unique_by=lambda dialogue: dialogue.id)
