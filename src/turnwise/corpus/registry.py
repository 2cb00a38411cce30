"""The readers by name, with what a user should know of each corpus: licence, home, published counts, where to fetch it."""

import importlib
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.fetch import Download
from turnwise.corpus.intake import CorpusError, Counts, Intake


@dataclass(frozen=True, slots=True)
class Reader:
    """A layout that turnwise reads.

    Attributes:
        name: what `corpus import` calls it; also the module in `readers/`.
        title: what it is, in a line.
        licence: the corpus' licence as its authors state it; empty for people's own logs.
        home: where its authors publish it.
        published: dialogues and utterances as TOD-BERT's and WMDC's tables print them, or the authors do.
        downloads: what `corpus fetch` gets; empty where the authors want a form filled in or a script run.
        encoding: of its texts.
    """

    name: str
    title: str
    licence: str = ""
    home: str = ""
    published: Counts | None = None
    downloads: tuple[Download, ...] = ()
    encoding: str = "utf-8"

    @property
    def is_log(self) -> bool:
        """Whether it reads people's own logs, rather than a public corpus."""
        return not self.home

    def _function(self) -> Callable[..., Iterator[Dialogue]]:
        function: Callable[..., Iterator[Dialogue]] = importlib.import_module(
            f"turnwise.corpus.readers.{self.name}"
        ).read
        return function

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """What `--set` may set: the keyword parameters of the reader's function."""
        parameters = inspect.signature(self._function()).parameters
        return {name: parameter for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY}

    @property
    def help(self) -> str:
        """The docstring of the reader's function, which explains the options."""
        return inspect.getdoc(self._function()) or ""

    def parse(self, settings: Mapping[str, str]) -> dict[str, Any]:
        """Options from `key=value` words, each turned into its parameter's type."""
        hints = typing.get_type_hints(self._function())
        return {name: _parse(name, hints.get(name, str), value) for name, value in settings.items()}

    def read(self, intake: Intake, **options: Any) -> Iterator[Dialogue]:
        """Reads what the intake finds."""
        known = self.options
        for name in options:
            if name not in known:
                has = f"it has {', '.join(known)}" if known else "it has none"
                raise CorpusError(f"reader {self.name} has no option {name!r}: {has}")
        return self._function()(intake, **options)


def _parse(name: str, kind: Any, value: str) -> Any:
    if kind is bool:
        if value.lower() not in ("true", "false"):
            raise CorpusError(f"{name}={value!r}: say true or false")
        return value.lower() == "true"
    if kind is str:
        return value
    if isinstance(kind, types.UnionType):  # Mapping | None
        pairs = [pair.partition("=") for pair in value.split(",")]
        if not all(key.strip() and equals and target.strip() for key, equals, target in pairs):
            raise CorpusError(f"{name}={value!r}: expected pairs, as in {name}=bob=system,*=user")
        return {key.strip(): target.strip() for key, _, target in pairs}
    raise TypeError(f"no way to set an option of type {kind}")


_GITHUB = "https://github.com"


def _archive(repository: str, branch: str = "master") -> tuple[Download, ...]:
    name = f"{repository.rpartition('/')[2]}.zip"
    return (Download(f"{_GITHUB}/{repository}/archive/refs/heads/{branch}.zip", name=name),)


def _raw(repository: str, *paths: str, branch: str = "master") -> tuple[Download, ...]:
    return tuple(Download(f"{_GITHUB}/{repository}/raw/{branch}/{path}") for path in paths)


_READERS = (
    Reader("table", "Your log as CSV, TSV or Parquet, a message a row"),
    Reader("messages", "Chat-completion logs: JSON Lines with messages of role and content"),
    Reader("convokit", "A ConvoKit corpus: utterances.jsonl"),
    Reader("text", "Plain text: 'Speaker: text' lines, a blank line between dialogues"),
    Reader("jsonl", "turnwise's own format: JSON Lines, a dialogue a line"),
    Reader("responses", "Response-selection files (Ubuntu, Douban, E-commerce) turned back into dialogues"),
    Reader("labelled_responses", "The same files with every candidate, right or wrong, for training a re-ranker"),
    Reader("question_answers", "Question-answer files (AmazonQA and others) as dialogues of two turns"),
    Reader("nli", "Natural language inference (SNLI, MNLI, triplets) as pairs or triplets of turns"),
    Reader(
        "schema_guided_dialogue",
        "Schema-Guided Dialogue, 16 domains",
        "CC BY-SA 4.0",
        f"{_GITHUB}/google-research-datasets/dstc8-schema-guided-dialogue",
        Counts(22_825, 463_284),
        _archive("google-research-datasets/dstc8-schema-guided-dialogue"),
    ),
    Reader(
        "multiwoz",
        "MultiWOZ 2.1 and 2.2, 7 domains",
        "MIT",
        f"{_GITHUB}/budzianowski/multiwoz",
        Counts(10_420, 71_410),
        _raw("budzianowski/multiwoz", "data/MultiWOZ_2.1.zip"),
    ),
    Reader(
        "kvret",
        "SMD / KVRET, an in-car assistant",
        "none stated; cite Eric and Manning (2017)",
        "https://nlp.stanford.edu/blog/a-new-multi-turn-multi-domain-task-oriented-dialogue-dataset",
        Counts(3_031, 15_928),
        (Download("https://nlp.stanford.edu/projects/kvret/kvret_dataset_public.zip"),),
    ),
    Reader(
        "woz2",
        "WOZ 2.0, restaurant search",
        "Apache-2.0",
        f"{_GITHUB}/nmrksic/neural-belief-tracker",
        Counts(1_200, 5_012),
        _raw(
            "nmrksic/neural-belief-tracker",
            *(f"data/woz/woz_{split}_en.json" for split in ("train", "validate", "test")),
        ),
    ),
    Reader(
        "camrest676",
        "CamRest676, restaurant search",
        "none stated; cite Wen et al. (2017)",
        f"{_GITHUB}/shawnwun/NNDIAL",
        Counts(676, 2_744),
        _raw("shawnwun/NNDIAL", "data/CamRest676/CamRest676.json"),
    ),
    Reader(
        "star",
        "STAR, 24 tasks with action labels",
        "MIT",
        f"{_GITHUB}/RasaHQ/STAR",
        None,
        _archive("RasaHQ/STAR"),
    ),
    Reader(
        "taskmaster",
        "Taskmaster-1, -2, -4 and the full -3",
        "CC BY 4.0",
        f"{_GITHUB}/google-research-datasets/Taskmaster",
        Counts(13_215, 303_066),
        _archive("google-research-datasets/Taskmaster"),
    ),
    Reader(
        "taskmaster3_partial",
        "Taskmaster-3's training rows and reward files",
        "CC BY 4.0",
        f"{_GITHUB}/google-research-datasets/Taskmaster",
        None,
        _archive("google-research-datasets/Taskmaster"),
    ),
    Reader(
        "msr_e2e",
        "MSR-E2E: film, restaurant and taxi booking",
        "terms of its authors; may not be passed on",
        f"{_GITHUB}/xiul-msr/e2e_dialog_challenge",
        Counts(10_087, 74_686),
        _raw(
            "xiul-msr/e2e_dialog_challenge",
            *(f"data/{domain}_all.tsv" for domain in ("movie", "restaurant", "taxi")),
        ),
    ),
    Reader(
        "frames",
        "Frames, travel booking",
        "terms of its authors; may not be passed on",
        "https://www.microsoft.com/en-us/research/project/frames-dataset",
        Counts(1_369, 19_986),
    ),
    Reader(
        "metalwoz",
        "MetaLWOZ, 47 domains",
        "terms of its authors; may not be passed on",
        "https://www.microsoft.com/en-us/research/project/metalwoz",
        Counts(37_884, 432_036),
    ),
    Reader(
        "self_dialogue",
        "The self-dialogue corpus: films, music, sport",
        "BSD-3-Clause",
        f"{_GITHUB}/jfainberg/self_dialogue_corpus",
        Counts(24_165, 348_554),
        _archive("jfainberg/self_dialogue_corpus"),
    ),
    Reader(
        "chitchat",
        "The BYU chitchat data set",
        "MIT",
        f"{_GITHUB}/BYU-PCCL/chitchat-dataset",
        Counts(7_168, 258_145),
        _archive("BYU-PCCL/chitchat-dataset"),
    ),
    Reader(
        "casino",
        "CaSiNo, campsite negotiations",
        "CC BY 4.0",
        f"{_GITHUB}/kushalchawla/CaSiNo",
        Counts(1_030, 14_297),
        _archive("kushalchawla/CaSiNo", "main"),
    ),
    Reader(
        "dailydialog",
        "DailyDialog, small talk for learners of English",
        "CC BY-NC-SA 4.0 (non-commercial)",
        "https://huggingface.co/datasets/ConvLab/dailydialog",
        Counts(13_118, 102_979),
        (
            Download(
                "https://huggingface.co/datasets/ConvLab/dailydialog/resolve/main/data.zip", name="dailydialog.zip"
            ),
        ),
    ),
    Reader(
        "topical_chat",
        "Topical-Chat, conversations about articles",
        "CDLA-Sharing-1.0",
        f"{_GITHUB}/alexa/Topical-Chat",
        Counts(10_784, 235_434),
        _archive("alexa/Topical-Chat"),
    ),
    Reader("dstc2", "DSTC2, restaurant search by voice", "mixed; see its home", f"{_GITHUB}/matthen/dstc"),
    Reader(
        "gsim_m2m",
        "Simulated dialogue (GSIM): films and restaurants",
        "as is; see its home",
        f"{_GITHUB}/google-research-datasets/simulated-dialogue",
        Counts(3_008, 27_120),
        _archive("google-research-datasets/simulated-dialogue"),
    ),
    Reader(
        "cornell_movie_dialogs",
        "Cornell Movie-Dialogs",
        "none stated; cite Danescu-Niculescu-Mizil and Lee (2011)",
        "https://www.cs.cornell.edu/~cristian/Cornell_Movie-Dialogs_Corpus.html",
        Counts(83_097, 304_713),
        (Download("https://www.cs.cornell.edu/~cristian/data/cornell_movie_dialogs_corpus.zip"),),
        encoding="latin-1",
    ),
    Reader(
        "personachat",
        "PersonaChat",
        "none stated; cite Zhang et al. (2018)",
        "https://parl.ai/projects/personachat",
        Counts(18_876, 250_634),
        (Download("https://parl.ai/downloads/personachat/personachat.tgz"),),
    ),
    Reader(
        "abcd",
        "ABCD, customer service with actions",
        "MIT",
        f"{_GITHUB}/asappresearch/abcd",
        Counts(8_034, 64_500),
        _raw("asappresearch/abcd", "data/abcd_v1.1.json.gz"),
    ),
    Reader(
        "ccpe_m",
        "CCPE-M, coached conversations about films",
        "CC BY-SA 4.0",
        f"{_GITHUB}/google-research-datasets/ccpe",
        Counts(502, 12_000),
        (Download("https://storage.googleapis.com/dialog-data-corpus/CCPE-M-2019/data.json"),),
    ),
    Reader(
        "reddit",
        "Reddit as context and response (JSON Lines)",
        "terms of its authors; built by their scripts",
        f"{_GITHUB}/PolyAI-LDN/conversational-datasets",
        Counts(15_914_021, 31_908_317),
    ),
    Reader(
        "irc_disentanglement",
        "Threads of the Ubuntu channel, along annotated reply links",
        "CC BY 4.0",
        "https://www.jkk.name/irc-disentanglement",
        None,
        _archive("jkkummerfeld/irc-disentanglement"),
    ),
    Reader(
        "massive",
        "MASSIVE, labelled utterances with slots, a file a locale",
        "CC BY 4.0",
        f"{_GITHUB}/alexa/massive",
        Counts(16_521, 16_521),
        (Download("https://amazon-massive-nlu-dataset.s3.amazonaws.com/amazon-massive-dataset-1.1.tar.gz"),),
    ),
    Reader(
        "hwu64_kfold",
        "HWU64 in folds, labelled utterances with slots",
        "CC BY 4.0",
        f"{_GITHUB}/xliuhw/NLU-Evaluation-Data",
        Counts(11_036, 11_036),
        _archive("xliuhw/NLU-Evaluation-Data"),
    ),
    Reader(
        "snips",
        "SNIPS as slot-gated, labelled utterances with slots",
        "CC0 (source)",
        f"{_GITHUB}/MiuLab/SlotGated-SLU",
        Counts(14_484, 14_484),
        _archive("MiuLab/SlotGated-SLU"),
    ),
    Reader(
        "atis",
        "ATIS as slot-gated, labelled utterances with slots",
        "none stated; cite Hemphill et al. (1990)",
        f"{_GITHUB}/MiuLab/SlotGated-SLU",
        Counts(5_871, 5_871),
        _archive("MiuLab/SlotGated-SLU"),
    ),
    Reader(
        "clinc150",
        "CLINC150, labelled utterances and out-of-scope ones",
        "CC BY 3.0",
        f"{_GITHUB}/clinc/oos-eval",
        Counts(23_700, 23_700),
        _raw("clinc/oos-eval", "data/data_full.json"),
    ),
)

READERS: Mapping[str, Reader] = types.MappingProxyType({reader.name: reader for reader in _READERS})


def get_reader(name: str) -> Reader:
    """The reader of that name.

    Raises:
        CorpusError: if there is none.
    """
    if name not in READERS:
        raise CorpusError(f"there is no reader {name!r}: choose from {', '.join(READERS)}")
    return READERS[name]
