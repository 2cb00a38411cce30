"""`turnwise start`: from a log to a project, a newer log, and commands inside the project without paths."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.chats import write_chats
from tests.helpers.command_line import run
from tests.helpers.served import served
from tests.helpers.small_map import reduce_by_components
from turnwise.assist.intents.storage import read_examples
from turnwise.assist.map.utterance_map import UtteranceMap
from turnwise.core.dialogue import Dialogue
from turnwise.core.project import Part, Project
from turnwise.corpus.storage.store import Store
from turnwise.corpus.storage.writing import write_store
from turnwise.corpus.synthetic.sample import sample_dialogues
from turnwise.serve.server import listen
from turnwise.serve.settings import ServeSettings

Run = Callable[..., tuple[str, str]]


def _part(folder: Path, name: Part) -> Path:
    return Project.load(folder).part(name)


@pytest.fixture(scope="module")
def dialogues() -> list[Dialogue]:
    return list(sample_dialogues(24, 1))


@pytest.fixture(scope="module", autouse=True)
def _reduce_by_components() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        reduce_by_components(patch)
        yield


@pytest.fixture(scope="module")
def built(
    tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path], dialogues: list[Dialogue]
) -> Path:
    """A project of the first twenty conversations, to be copied."""
    place = tmp_path_factory.mktemp("start")
    log = write_chats(place / "chats.jsonl", dialogues[:20])
    answer = run("start", log, "--out", place / "project", "--model", tiny_folder("bert"), "--no-serve")
    assert "fits the reader `messages`" in answer.stderr
    assert "20 conversations" in answer.stdout
    return place / "project"


@pytest.fixture
def project(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the project, which is the current folder."""
    shutil.copytree(built, tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def test_the_project_holds_the_log_and_everything_made_of_it(built: Path, dialogues: list[Dialogue]) -> None:
    assert [each.id for each in Store(_part(built, "store"))] == [each.id for each in dialogues[:20]]
    texts = {turn.text for each in dialogues[:20] for turn in each.turns if turn.speaker == "user"}
    assert set(UtteranceMap.load(_part(built, "map")).texts) <= texts
    assert {"map", "responses", "conversations"} <= {path.name for path in _part(built, "store").parent.iterdir()}


def test_only_the_owner_may_enter_a_project(built: Path) -> None:
    assert built.stat().st_mode & 0o777 == 0o700


def test_conversations_are_divided_for_training_and_stay_in_their_split(
    project: Path, tmp_path: Path, run_turnwise: Run
) -> None:
    before = {each.id: each.split for each in Store(_part(project, "store"))}
    run_turnwise("start", write_chats(tmp_path / "chats.jsonl", list(sample_dialogues(80, 1))), "--no-serve")
    after = {each.id: each.split for each in Store(_part(project, "store"))}
    assert before.items() <= after.items() and set(after.values()) == {"train", "valid", "test"}
    settings = [f"--set={each}" for each in ("steps=2", "batch_size=4", "max_length=16")]
    _, error = run_turnwise("train", "dse", "--out", "model", "--probe", _part(project, "store"), *settings)
    assert "training on the split 'train'" in error
    metrics = [json.loads(line) for line in Path("model/metrics.jsonl").read_text().splitlines()]
    assert any(name.startswith("probe.responses") for line in metrics for name in line)


def test_a_newer_log_adds_what_is_new_and_keeps_labels(
    project: Path, tmp_path: Path, dialogues: list[Dialogue], run_turnwise: Run
) -> None:
    run_turnwise("labels", "name", 0, "first_group")
    labelled = run_turnwise("labels", "status", "--json")[0]
    out, _ = run_turnwise("start", write_chats(tmp_path / "chats.jsonl", dialogues[10:]), "--no-serve")
    assert "4 conversations; 10 were already there" in out and "24 conversations" in out
    assert f"{sum(len(each.turns) for each in dialogues[20:])} utterances, with those of updated" in out
    assert "new groups" in out
    assert len(Store(_part(project, "store"))) == 24
    similar = json.loads(run_turnwise("conversations", "similar", "--dialogue", dialogues[23].id, "--json")[0])
    assert len(similar["conversations"]) == 5
    after = json.loads(run_turnwise("labels", "status", "--json")[0])
    assert after["labelled"] == json.loads(labelled)["labelled"] > 0
    assert after["texts"] > json.loads(labelled)["texts"]
    assert UtteranceMap.load(_part(project, "map")).comparison is not None
    assert {path.name for path in (project / "builds").iterdir()} == {"1", "2"}  # the previous build may be in use
    out, _ = run_turnwise("start", "--no-serve")
    assert out.count("(no change)") == 3


def test_a_longer_version_of_a_conversation_replaces_the_shorter_one(
    project: Path, tmp_path: Path, dialogues: list[Dialogue], run_turnwise: Run
) -> None:
    first = dialogues[0]
    longer = replace(first, turns=(*first.turns, *dialogues[21].turns))
    out, _ = run_turnwise("start", write_chats(tmp_path / "chats.jsonl", [longer]), "--no-serve")
    assert "1 conversations with other turns than before" in out
    assert f" {len(dialogues[21].turns)} utterances, with those of updated" in out
    stored = next(each for each in Store(_part(project, "store")) if each.id == first.id)
    assert [turn.text for turn in stored.turns] == [turn.text for turn in longer.turns]
    found = json.loads(
        run_turnwise("conversations", "similar", dialogues[21].turns[0].text, "--top", "20", "--json")[0]
    )
    texts = {each["dialogue"]: len(each["turns"]) for each in found["conversations"]}
    assert texts[first.id] == len(longer.turns)


def test_commands_inside_need_no_paths(project: Path, tmp_path: Path, run_turnwise: Run) -> None:
    examples = tmp_path / "examples.csv"
    texts = {"track": ["where is my parcel", "has it shipped"], "cancel": ["cancel my order", "stop the order"]}
    lines = [f"{text},{intent}" for intent, each in texts.items() for text in each]
    examples.write_text("\n".join(["text,intent", *lines]) + "\n")
    run_turnwise("intents", "fit", examples, "--head", "prototypes")
    assert _part(project, "intents") == project / "intents" / "1"
    predicted = json.loads(run_turnwise("intents", "predict", "where is my parcel", "--json")[0])
    assert [each["text"] for each in predicted] == ["where is my parcel"]
    run_turnwise("intents", "examples", "add", "refund", "I want my money back")
    assert "refund" in (_part(project, "intents") / "changes.jsonl").read_text()
    assert json.loads(run_turnwise("responses", "suggest", "hello", "--top", "1", "--json")[0])["suggestions"]
    out, _ = run_turnwise("map", "--method", "tsne")
    assert str(_part(project, "map") / "map.html") in out


def test_serve_serves_the_project(project: Path, run_turnwise: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from turnwise.serve import server

    served: list[Any] = []
    monkeypatch.setattr(server, "run", lambda settings, host, port, *_: served.append((settings, port)))
    run_turnwise("serve", "--port", "0")
    run_turnwise("start", "--port", "0")
    assert served[0] == served[1]
    settings, port = served[0]
    assert port == 0 and settings.project == project
    settings = settings.resolved()
    assert settings.map == _part(project, "map") and settings.intents is None
    assert settings.responses == str(_part(project, "responses"))


def _fit(texts: dict[str, list[str]], file: Path) -> str:
    """Fit a classifier on these texts and return what the command prints to standard error."""
    lines = [f"{text},{intent}" for intent, each in texts.items() for text in each]
    file.write_text("\n".join(["text,intent", *lines]) + "\n")
    return run("intents", "fit", file, "--head", "prototypes").stderr


TEXTS = {"track": ["where is my parcel", "has it shipped"], "cancel": ["cancel my order", "stop the order"]}


def test_a_new_classifier_takes_over_added_examples_and_going_back_is_possible(
    project: Path, tmp_path: Path, run_turnwise: Run
) -> None:
    _fit(TEXTS, tmp_path / "examples.csv")
    run_turnwise("intents", "examples", "add", "refund", "I want my money back", "refund me")
    run_turnwise("intents", "examples", "remove", "refund", "refund me")
    assert "1 examples that were added" in _fit(TEXTS | {"greet": ["hello", "hi"]}, tmp_path / "more.csv")
    assert {pair[1] for pair in read_examples(_part(project, "intents"))} == {"track", "cancel", "greet", "refund"}
    assert "refund me" not in {text for text, _ in read_examples(_part(project, "intents"))}
    run_turnwise("intents", "use", 1)
    listed = json.loads(run_turnwise("intents", "history", "--json")[0])
    assert [(each["number"], each["intents"], each["in_use"]) for each in listed] == [(1, 3, True), (2, 4, False)]
    assert "no classifier 7" in run_turnwise("intents", "use", 7, code=1)[1]


def test_canned_answers_survive_an_overlapping_log_and_another_model(
    project: Path, tmp_path: Path, dialogues: list[Dialogue], run_turnwise: Run, tiny_folder: Callable[[str], Path]
) -> None:
    _fit(TEXTS, tmp_path / "examples.csv")
    canned = tmp_path / "canned.csv"
    canned.write_text("text,after\nPlease restart the router.,my internet is down\n")
    run_turnwise("responses", "index", canned)

    def suggested() -> tuple[str, int]:
        answer = run_turnwise("responses", "suggest", "my internet is down", "--top", "1", "--json")[0]
        first = json.loads(answer)["suggestions"][0]
        return first["text"], first["count"]

    assert suggested() == ("Please restart the router.", 1)
    longer = replace(dialogues[0], turns=(*dialogues[0].turns, *dialogues[21].turns))
    run_turnwise("start", write_chats(tmp_path / "chats.jsonl", [longer]), "--no-serve")
    assert suggested() == ("Please restart the router.", 1)
    out, _ = run_turnwise("start", "--model", tiny_folder("distilbert"), "--no-serve")
    assert "(no change)" not in out and Project.load(project).model == str(tiny_folder("distilbert"))
    assert suggested() == ("Please restart the router.", 1)
    assert Project.load(project).classifier == 2  # fitted again
    assert json.loads(run_turnwise("intents", "predict", "cancel my order", "--json")[0])


def test_nothing_is_done_before_model_port_and_disk_are_checked(
    tmp_path: Path, run_turnwise: Run, dialogues: list[Dialogue], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, folder = write_chats(tmp_path / "chats.jsonl", dialogues[:3]), tmp_path / "project"
    assert "does not exist" in run_turnwise("start", log, "--out", folder, "--model", "./no-model", code=1)[1]
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        taken.listen()
        assert "choose another with --port" in run_turnwise("start", log, "--out", folder, "--port", port, code=1)[1]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100, 99, 1))
    assert "free some" in run_turnwise("start", log, "--out", folder, "--no-serve", code=1)[1]
    assert not (folder / "turnwise.yaml").exists()


def test_a_second_start_says_who_is_updating(project: Path, run_turnwise: Run) -> None:
    with Project.load(project).lock("updating", "process 4711"):
        assert "process 4711 is updating" in run_turnwise("start", "--no-serve", code=1)[1]


def test_masking_is_remembered_and_cannot_be_changed_later(
    tmp_path: Path, run_turnwise: Run, tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log.csv"
    rows = [f"c{number},user,call me on 0170 415195{number} or a{number}@b.com" for number in range(9)]
    log.write_text("\n".join(["conversation,speaker,text", *rows]) + "\n")
    folder = tmp_path / "masked"
    options = ("--out", folder, "--model", tiny_folder("bert"), "--no-serve")
    out, err = run_turnwise("start", log, *options, "--region", "DE")
    assert "415195" not in out + err and "none: no turn is an agent's" in out
    assert {turn.text for each in Store(_part(folder, "store")) for turn in each.turns} == {
        "call me on [PHONE] or [EMAIL]"
    }
    assert "were made with regions" in run_turnwise("start", log, *options, "--region", "FR", code=1)[1]
    log.write_text("\n".join(["conversation,speaker,text", *rows, "c99,user,write to new@b.com please"]) + "\n")
    run_turnwise("start", log, *options)
    assert "new@b.com" not in "".join(turn.text for each in Store(_part(folder, "store")) for turn in each.turns)


def test_lists_patterns_and_guessed_regions_are_remembered(
    tmp_path: Path, run_turnwise: Run, tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("customers.txt").write_text("Fizzlewick\n")
    log, rows = tmp_path / "log.csv", ["conversation,speaker,text", "c0,user,this is about Fizzlewick and AB-1234"]
    rows += [f"c{number},user,es ist 0170 415195{number} von kunde{number}@post.de" for number in range(1, 9)]
    log.write_text("\n".join(rows) + "\n")
    options = ("--out", "masked", "--model", tiny_folder("bert"), "--no-serve")
    masks = ("--mask-list", "customer=customers.txt", "--mask-pattern", "order=[A-Z]{2}-[0-9]{4}")
    out, err = run_turnwise("start", log, *options, *masks)
    assert "Phone numbers are masked as in DE (8 addresses in .de)" in err and "--region COUNTRY" in err
    assert "names within sentences, unless listed; user names" in " ".join(out.split())
    assert "es ist [PHONE] von [EMAIL]" in out and "Fizzlewick" not in out + err
    project = Project.load(tmp_path / "masked")
    assert project.regions == ("DE",) and project.steps == ("log", "mask")
    assert project.mask_lists == (f"customer={tmp_path / 'customers.txt'}",)
    monkeypatch.chdir(tmp_path / "masked")
    log.write_text("\n".join([*rows, "c99,user,fizzlewick has CD-5678 and it is 0170 4151959"]) + "\n")
    _, err = run_turnwise("start", log, "--no-serve")
    assert "guessed" not in err
    newest = next(each for each in Store(_part(tmp_path / "masked", "store")) if each.id == "c99")
    assert newest.turns[0].text == "[CUSTOMER] has [ORDER] and it is [PHONE]"
    assert "were made with mask_patterns" in run_turnwise("start", log, "--mask-pattern", "a=b", code=1)[1]


def test_a_folder_of_several_formats_makes_a_project_and_unread_files_an_exit_status(
    tmp_path: Path, run_turnwise: Run, tiny_folder: Callable[[str], Path], dialogues: list[Dialogue]
) -> None:
    (tmp_path / "logs").mkdir()
    write_chats(tmp_path / "logs" / "chats.jsonl", dialogues[:9])
    (tmp_path / "logs" / "log.csv").write_text("conversation,speaker,text\nc1,Anna,hello there\nc1,Ben,hi\n")
    (tmp_path / "logs" / "empty.csv").touch()
    options = ("--out", tmp_path / "project", "--model", tiny_folder("bert"), "--no-serve")
    _, error = run_turnwise("start", tmp_path / "logs", *options, code=1)
    assert "HINT: 2 utterances are of speakers whose role is unknown" in error
    assert error.endswith("of files that were not read:\n  empty.csv is empty\n")
    assert len(Store(_part(tmp_path / "project", "store"))) == 10
    (tmp_path / "logs" / "empty.csv").unlink()
    assert "10 were already there" in run_turnwise("start", tmp_path / "logs", *options)[0]


def test_a_store_is_used_as_it_is_and_refused_where_it_should_be_masked(
    tmp_path: Path, run_turnwise: Run, tiny_folder: Callable[[str], Path], dialogues: list[Dialogue]
) -> None:
    store = write_store(dialogues[:9], tmp_path / "store")
    options = ("--model", tiny_folder("bert"), "--no-serve")
    run_turnwise("start", store.folder, "--out", tmp_path / "project", *options)
    assert list(Store(_part(tmp_path / "project", "store"))) == dialogues[:9]
    error = run_turnwise("start", store.folder, "--out", tmp_path / "masked", *options, "--mask", code=1)[1]
    assert "is a store" in error and not (tmp_path / "masked").exists()


def test_errors_say_what_to_do(tmp_path: Path, run_turnwise: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "name a log to import" in run_turnwise("start", code=1)[1]
    assert "does not exist" in run_turnwise("start", "nothing.csv", code=1)[1]
    Path("empty.csv").touch()
    assert run_turnwise("start", "empty.csv", "--no-serve", code=1)[1].endswith("empty.csv is empty\n")
    assert "outside a project" in run_turnwise("intents", "fit", "x.csv", code=2)[1]
    assert "outside a project" in run_turnwise("map", code=2)[1]


@pytest.fixture
def german_log(tmp_path: Path) -> Path:
    texts = [
        "Mein Paket ist noch nicht angekommen, was soll ich tun?",
        "Wir sehen nach, bitte warten Sie einen Moment.",
    ]
    rows = [f"{number}\t{speaker}\t{text}" for number in range(6) for speaker, text in enumerate(texts)]
    path = tmp_path / "chats.tsv"
    path.write_text("\n".join(["conversation\tspeaker\ttext", *rows]), encoding="utf-8")
    return path


def test_a_log_that_the_model_does_not_read_is_warned_of(german_log: Path, run_turnwise: Run) -> None:
    out = german_log.parent / "project"
    options = ("--out", out, "--no-serve", "--set", "speakers=0=user,1=system")
    _, error = run_turnwise("start", german_log, *options)
    assert error.count("'de' (ISO 639), which turnwise-small-int8 does not read") == 1
    _, error = run_turnwise("start", "--out", out, "--no-serve", "--model", "use-multilingual")
    assert "WARNING" not in error
    with served(ServeSettings(project=out)) as client:
        answer = client.post("/v1/embeddings", json={"input": "Wo bleibt mein Paket?", "model": "use-multilingual"})
        assert len(answer.json()["data"][0]["embedding"]) == 512
        found = client.post("/respond", json={"conversation": ["Wo bleibt mein Paket?"]}).json()
        assert "Wir sehen nach" in found["suggestions"][0]["text"]
