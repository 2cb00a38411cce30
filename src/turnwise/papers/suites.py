"""The suites: what each paper measures, and where each figure stands in its tables."""

from collections.abc import Callable
from dataclasses import dataclass

from turnwise.evaluation.suites import MetricKey, SuiteStep, Summary
from turnwise.evaluation.tables import PrintedTable
from turnwise.papers.published import printed

#: Which figure: task, data set, setting, metric.
Key = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Average:
    """The mean of several figures, as a paper's 'Ave.' column has it."""

    name: str
    keys: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """The first of several figures that was measured: by a re-ranker, or else by cosine."""

    keys: tuple[Key, ...]


#: From a table's group and column to our figure.
Cells = Callable[[str, str], Key | Average | Either]


@dataclass(frozen=True, slots=True)
class SuiteTable:
    """A paper's table, and which of our figures belongs where."""

    printed: PrintedTable
    cells: Cells
    #: A table whose groups are kinds of models has our line once, in the last of them; else every group has one.
    groups_are_models: bool = False
    #: A table of several backbones proposes no line that a model could be held against.
    backbones: bool = False


@dataclass(frozen=True, slots=True)
class PaperSuite:
    """What a paper measures.

    Attributes:
        name: of the suite.
        title: of the paper, in a word.
        steps: what is run.
        tables: what it fills.
        remarks: how the splits of data sets differ from the paper's, where its data sets do not say so themselves.
        stand_ins: data sets that go by the paper's names but are not its own: their figures stand in tables of their own.
    """

    name: str
    title: str
    steps: tuple[SuiteStep, ...]
    tables: tuple[SuiteTable, ...]
    remarks: dict[str, str]
    stand_ins: tuple[str, ...] = ()


#: Why a paper's figure on a data set is not like for like with ours: paper → data set → what differs.
SPLIT_REMARKS: dict[str, dict[str, str]] = {
    "dse": {
        "hwu64": (
            "DSE tests on 3,853 utterances, the last 15% of each intent in the full annotation, which cannot be rebuilt from the "
            "public splits; ours is DialoGLUE's test split of 1,076"
        ),
        "snips": (
            "DSE tests on 1,447 utterances, the last 10% of each intent after pooling the published splits; ours is the usual test "
            "split of 700"
        ),
    },
    "tadse": {
        "hwu64": (
            "TaDSE's test split has the same size, but its table of training data counts 19.2K utterances; DialoGLUE's training "
            "split has 8,954"
        ),
        "hwu64_kfold": (
            "TaDSE's test split has the same size, but its table of training data counts 19.2K utterances; fold 1 has 9,960 to "
            "train on"
        ),
        "clinc150": (
            "TaDSE's table of training data counts 15.3K utterances, as clinc150_oos_plus has with its 250 out-of-scope ones "
            "(15,250); clinc150 has 15,100"
        ),
    },
}

# ---- DSE

_DSE_INTENTS = {
    "Clinc150": "clinc150",
    "Bank77": "banking77",
    "Snips": "snips",
    "Hwu64": "hwu64",
    "Appen-A": "appen_a",
    "Appen-H": "appen_h",
}
_DSE_THRESHOLDS = ("mean-std", "mean")
_DSE_SCOPE = ("Accuracy", "In-Accuracy", "OOS-Accuracy", "OOS-Recall")
_DSE_RESPONSES = {
    "AmazonQA": ("amazonqa", "0-shot similarity"),
    "DSTC7-Ubuntu": ("dstc7_ubuntu", "0-shot similarity, history"),
}
_TOP = ("Top-1", "Top-3", "Top-10")
_ACTIONS = {"DSTC2": "dstc2", "GSIM": "gsim"}


def _dse_intents(way: str, names: tuple[str, ...], which: str = "") -> Cells:
    def cells(group: str, column: str) -> Key | Average:
        keys = {name: ("intents", _DSE_INTENTS[name], f"{group} {way}", "accuracy") for name in names}
        return Average(f"{group} {way}{which}", tuple(keys.values())) if column == "Ave." else keys[column]

    return cells


def _dse_scope(shots: str) -> Cells:
    return lambda group, column: ("out-of-scope", "clinc150", f"{shots}, threshold {group}", column)


def _dse_responses(group: str, column: str) -> Key:
    dataset, top, _ = column.split()
    return ("responses", *_DSE_RESPONSES[dataset], top)


def _dse_tuned_responses(group: str, column: str) -> Key:
    _, shots, top, _ = column.split()
    return ("responses", "amazonqa", f"{shots} fine-tuned", top)


def _dse_actions(group: str, column: str) -> Key | Average:
    if column == "Ave.":
        return _DSE_ALL_ACTIONS
    dataset, shots, metric = column.split(" ", 2)
    return ("actions", _ACTIONS[dataset], f"{shots} fine-tuned", metric)


_DSE_ALL_ACTIONS = Average(
    "fine-tuned",
    tuple(
        ("actions", dataset, f"{shots}-shot fine-tuned", metric)
        for dataset in _ACTIONS.values()
        for shots in (10, 20)
        for metric in ("Micro F1", "Macro F1")
    ),
)

#: The averages over whole tasks of its Table 6, as the printed figures show them to be made.
_DSE_TASKS = {
    "IC": Average(
        "1- and 5-shot prototypes",
        tuple(
            ("intents", name, f"{shots}-shot prototypes", "accuracy")
            for name in _DSE_INTENTS.values()
            for shots in (1, 5)
        ),
    ),
    "OOS": Average(
        "1-shot, both thresholds",
        tuple(
            ("out-of-scope", "clinc150", f"1-shot, threshold {threshold}", metric)
            for threshold in _DSE_THRESHOLDS
            for metric in _DSE_SCOPE
        ),
    ),
    "u-RS": Average("0-shot similarity", tuple(("responses", "amazonqa", "0-shot similarity", top) for top in _TOP)),
    "d-RS": Average(
        "0-shot similarity, history",
        tuple(("responses", "dstc7_ubuntu", "0-shot similarity, history", top) for top in _TOP),
    ),
    "DA": _DSE_ALL_ACTIONS,
}

_DSE = PaperSuite(
    "dse",
    "DSE",
    (
        SuiteStep("prototypes", tuple(_DSE_INTENTS.values()), ("sample",)),
        SuiteStep("out-of-scope", ("clinc150",), ("clinc150_oos_plus", "sample")),
        SuiteStep("answers", ("amazonqa",), ("sample",)),
        SuiteStep("histories", ("dstc7_ubuntu",), ("irc_ubuntu_100", "sample")),
        SuiteStep("fine-tuned intents", tuple(_DSE_INTENTS.values()), ("sample",)),
        SuiteStep("fine-tuned responses", ("amazonqa",), ("sample",)),
        SuiteStep("fine-tuned actions", ("gsim", "dstc2"), ("sample",)),
        SuiteStep("closeness", ("snli", "mnli"), ("sample",)),
    ),
    (
        SuiteTable(printed("dse", "Table 2"), _dse_intents("prototypes", tuple(_DSE_INTENTS))),
        SuiteTable(printed("dse", "Table 3"), _dse_scope("1-shot")),
        SuiteTable(printed("dse", "Table 4"), _dse_responses),
        SuiteTable(printed("dse", "Table 5"), _dse_actions),
        SuiteTable(printed("dse", "Table 6"), lambda group, column: _DSE_TASKS[column]),
        SuiteTable(printed("dse", "Table 7"), _dse_intents("fine-tuned", tuple(_DSE_INTENTS))),
        SuiteTable(printed("dse", "Table 8"), _dse_scope("5-shot")),
        SuiteTable(printed("dse", "Table 9"), _dse_tuned_responses),
        SuiteTable(
            printed("dse", "Table 10"),
            _dse_intents("prototypes", tuple(_DSE_INTENTS)[:4], ", public data sets"),
            backbones=True,
        ),
        SuiteTable(printed("dse", "Table 11"), _dse_responses, backbones=True),
        SuiteTable(
            printed("dse", "Section 4.5"),
            lambda group, column: Average(
                "entailment nearer than contradiction",
                tuple(("nli", name, "entailment nearer than contradiction", "accuracy") for name in ("snli", "mnli")),
            ),
        ),
    ),
    SPLIT_REMARKS["dse"],
    ("dstc2",),
)

# ---- DialogueCSE

_CORPORA = {"MDC": "mdc", "JDDC": "jddc", "ECD": "ecd"}


def _dialoguecse(group: str, column: str) -> Key:
    corpus, metric = column.split()
    name = _CORPORA[corpus]
    if metric == "Corr.":
        return ("sts", f"dsts_{name}", "cosine", "Spearman")
    return ("retrieval", f"retrieval_{name}", "cosine", metric)


_DIALOGUECSE = PaperSuite(
    "dialoguecse",
    "DialogueCSE",
    (
        SuiteStep("similarity", ("dsts_mdc", "dsts_jddc", "dsts_ecd"), ("stsb", "sick", "sample")),
        SuiteStep(
            "retrieval",
            ("retrieval_mdc", "retrieval_jddc", "retrieval_ecd"),
            ("retrieval_schema_guided", "retrieval_star", "retrieval_gsim", "sample"),
        ),
    ),
    (
        SuiteTable(printed("dialoguecse", "Table 2"), _dialoguecse, groups_are_models=True),
        SuiteTable(printed("dialoguecse", "Table 3"), _dialoguecse),
        SuiteTable(printed("dialoguecse", "Table 4"), _dialoguecse),
    ),
    {},
)

# ---- TaDSE

_TADSE_INTENTS = {"SNIPS": "snips", "ATIS": "atis", "MASS.": "massive", "HWU64": "hwu64_kfold", "Clinc150": "clinc150"}


def _tadse(group: str, column: str) -> Key | Average:
    keys = {name: ("intents", dataset, "1-NN", "accuracy") for name, dataset in _TADSE_INTENTS.items()}
    return Average("1-NN", tuple(keys.values())) if column == "Average" else keys[column]


_TADSE = PaperSuite(
    "tadse",
    "TaDSE",
    (
        SuiteStep("nearest", tuple(_TADSE_INTENTS.values()), ("sample",)),
        SuiteStep("geometry", tuple(_TADSE_INTENTS.values()), ("sample",)),
        SuiteStep("compressed nearest", tuple(_TADSE_INTENTS.values()), ("sample",)),
        SuiteStep("compressed geometry", tuple(_TADSE_INTENTS.values()), ("sample",)),
    ),
    (
        SuiteTable(printed("tadse", "Table 3"), _tadse),
        SuiteTable(printed("tadse", "Table 5"), _tadse),
        SuiteTable(printed("tadse", "Table 6"), _tadse),
    ),
    SPLIT_REMARKS["tadse"],
)

# ---- DiaEval


def _diaeval_actions(group: str, column: str) -> Key | Average:
    dataset, metric = column.split(" ", 1)
    keys = {name: ("actions", plain, "frozen encoder, MLP", metric) for name, plain in _ACTIONS.items()}
    return Average("frozen encoder, MLP", tuple(keys.values())) if dataset == "AVG." else keys[dataset]


def _diaeval_inference(group: str, column: str) -> Key | Average:
    plain = {"IC-TOD": "ci_tod", "DECODE": "decode"}
    keys = {name: ("inference", dataset, "frozen encoder, MLP", "accuracy") for name, dataset in plain.items()}
    return Average("frozen encoder, MLP", tuple(keys.values())) if column == "AVG." else keys[column]


_DIAEVAL = PaperSuite(
    "diaeval",
    "DiaEval",
    (
        SuiteStep("probed actions", ("gsim", "dstc2"), ("sample",)),
        SuiteStep("probed inference", ("ci_tod", "decode"), ("decode_pairs", "sample")),
        SuiteStep("histories", ("dstc7_ubuntu",), ("irc_ubuntu_100", "sample")),
    ),
    (
        SuiteTable(printed("diaeval", "Table 2"), _diaeval_actions),
        SuiteTable(printed("diaeval", "Table 3"), _diaeval_inference),
        SuiteTable(
            printed("diaeval", "Table 4"),
            lambda group, column: (
                "responses",
                "dstc7_ubuntu",
                "0-shot similarity, history",
                column.replace("TOP@", "Top-"),
            ),
        ),
    ),
    {},
    ("dstc2",),
)

# ---- UMS

_UMS_CORPORA = {"Ubuntu": "ubuntu_v1", "Douban": "douban", "E-commerce": "ecommerce"}


def _reranked(dataset: str, metric: str, suffix: str = "") -> Either:
    settings = ("re-ranker", "cosine, history")
    return Either(tuple(("reranking", dataset, setting + suffix, metric) for setting in settings))


def _ums(group: str, column: str) -> Either:
    corpus, metric = column.split()
    return _reranked(_UMS_CORPORA[corpus], metric)


def _ums_adversarial(group: str, column: str) -> Either:
    kind, metric = column.split()
    return _reranked("ubuntu_v1", metric, "" if kind == "Original" else ", adversarial")


_UMS = PaperSuite(
    "ums",
    "UMS",
    (
        SuiteStep(
            "candidates",
            ("ubuntu_v1", "douban", "ecommerce", "kakao_web", "kakao_clean"),
            (
                *("ubuntu_v1_slice", "ubuntu_v2_slice", "douban_slice", "ecommerce_slice", "irc_ubuntu"),
                *("dailydialog_plusplus", "dailydialog_plusplus_adversarial", "sample"),
            ),
        ),
        SuiteStep(
            "adversarial candidates", ("ubuntu_v1",), ("ubuntu_v1_slice", "ubuntu_v2_slice", "irc_ubuntu", "sample")
        ),
        SuiteStep(
            "coherence", (), ("ubuntu_v1_slice", "ubuntu_v2_slice", "irc_ubuntu", "dailydialog_plusplus", "sample")
        ),
    ),
    (
        SuiteTable(printed("ums", "Table 2"), _ums),
        SuiteTable(printed("ums", "Table 3"), lambda group, column: _reranked(f"kakao_{group.lower()}", column)),
        SuiteTable(printed("ums", "Table 4"), _ums_adversarial, groups_are_models=True),
        SuiteTable(printed("ums", "Table 5"), lambda group, column: _reranked("ubuntu_v1", column)),
    ),
    {},
)

PAPER_SUITES: dict[str, PaperSuite] = {suite.name: suite for suite in (_DSE, _DIALOGUECSE, _TADSE, _DIAEVAL, _UMS)}

# ---- summaries


def _parts(task: str, settings: tuple[str, ...], metrics: tuple[str, ...]) -> tuple[MetricKey, ...]:
    return tuple((task, setting, metric) for setting in settings for metric in metrics)


SUMMARIES: dict[str, tuple[Summary, ...]] = {
    # the five columns of DSE's Table 6
    "dse": (
        Summary("intents", _parts("intents", ("1-shot prototypes", "5-shot prototypes"), ("accuracy",))),
        Summary(
            "out of scope",
            _parts(
                "out-of-scope",
                ("1-shot, threshold mean-std", "1-shot, threshold mean"),
                ("Accuracy", "In-Accuracy", "OOS-Accuracy", "OOS-Recall"),
            ),
        ),
        Summary("answers", _parts("responses", ("0-shot similarity",), _TOP)),
        Summary("responses", _parts("responses", ("0-shot similarity, history",), _TOP)),
        Summary("actions", _parts("actions", ("10-shot fine-tuned", "20-shot fine-tuned"), ("Micro F1", "Macro F1"))),
    ),
    # the three panels of DiaEval's Figure 3
    "diaeval": (
        Summary("actions", (("actions", "frozen encoder, MLP", "Micro F1"),)),
        Summary("inference", (("inference", "frozen encoder, MLP", "accuracy"),)),
        Summary("responses", (("responses", "0-shot similarity, history", "Top-3"),)),
    ),
    "tadse": (Summary("intents", (("intents", "1-NN", "accuracy"),)),),
    "dialoguecse": (
        Summary("similarity", (("sts", "cosine", "Spearman"),)),
        Summary("retrieval", (("retrieval", "cosine", "MAP"),)),
    ),
    # a model is measured either as a re-ranker or by cosine, never as both
    "ums": (Summary("reranking", _parts("reranking", ("re-ranker", "cosine, history"), ("R10@1",))),),
}
