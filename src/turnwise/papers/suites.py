"""The suites: what each paper measures, and where each figure stands in its tables."""

from collections.abc import Callable
from dataclasses import dataclass

from turnwise.evaluation.datasets.intents import SPLIT_REMARKS
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
class Work:
    """A protocol on the data sets that the paper has, and on others that can stand in for them or that anybody can make."""

    protocol: str
    datasets: tuple[str, ...]
    instead: tuple[str, ...] = ()


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
class Suite:
    """What a paper measures.

    Attributes:
        name: of the suite.
        title: of the paper, in a word.
        work: what is run.
        tables: what it fills.
        remarks: how the splits of data sets differ from the paper's, where its data sets do not say so themselves.
        stand_ins: data sets that go by the paper's names but are not its own: their figures stand in tables of their own.
    """

    name: str
    title: str
    work: tuple[Work, ...]
    tables: tuple[SuiteTable, ...]
    remarks: dict[str, str]
    stand_ins: tuple[str, ...] = ()


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

_DSE = Suite(
    "dse",
    "DSE",
    (
        Work("prototypes", tuple(_DSE_INTENTS.values()), ("sample",)),
        Work("out-of-scope", ("clinc150",), ("clinc150_oos_plus", "sample")),
        Work("answers", ("amazonqa",), ("sample",)),
        Work("histories", ("dstc7_ubuntu",), ("irc_ubuntu_100", "sample")),
        Work("fine-tuned intents", tuple(_DSE_INTENTS.values()), ("sample",)),
        Work("fine-tuned responses", ("amazonqa",), ("sample",)),
        Work("fine-tuned actions", ("gsim", "dstc2"), ("sample",)),
        Work("closeness", ("snli", "mnli"), ("sample",)),
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


_DIALOGUECSE = Suite(
    "dialoguecse",
    "DialogueCSE",
    (
        Work("similarity", ("dsts_mdc", "dsts_jddc", "dsts_ecd"), ("stsb", "sick", "sample")),
        Work(
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


_TADSE = Suite(
    "tadse",
    "TaDSE",
    (
        Work("nearest", tuple(_TADSE_INTENTS.values()), ("sample",)),
        Work("geometry", tuple(_TADSE_INTENTS.values()), ("sample",)),
        Work("compressed nearest", tuple(_TADSE_INTENTS.values()), ("sample",)),
        Work("compressed geometry", tuple(_TADSE_INTENTS.values()), ("sample",)),
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


_DIAEVAL = Suite(
    "diaeval",
    "DiaEval",
    (
        Work("probed actions", ("gsim", "dstc2"), ("sample",)),
        Work("probed inference", ("ci_tod", "decode"), ("decode_pairs", "sample")),
        Work("histories", ("dstc7_ubuntu",), ("irc_ubuntu_100", "sample")),
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


_UMS = Suite(
    "ums",
    "UMS",
    (
        Work(
            "candidates",
            ("ubuntu_v1", "douban", "ecommerce", "kakao_web", "kakao_clean"),
            (
                *("ubuntu_v1_slice", "ubuntu_v2_slice", "douban_slice", "ecommerce_slice", "irc_ubuntu"),
                *("dailydialog_plusplus", "dailydialog_plusplus_adversarial", "sample"),
            ),
        ),
        Work("adversarial candidates", ("ubuntu_v1",), ("ubuntu_v1_slice", "ubuntu_v2_slice", "irc_ubuntu", "sample")),
        Work("coherence", (), ("ubuntu_v1_slice", "ubuntu_v2_slice", "irc_ubuntu", "dailydialog_plusplus", "sample")),
    ),
    (
        SuiteTable(printed("ums", "Table 2"), _ums),
        SuiteTable(printed("ums", "Table 3"), lambda group, column: _reranked(f"kakao_{group.lower()}", column)),
        SuiteTable(printed("ums", "Table 4"), _ums_adversarial, groups_are_models=True),
        SuiteTable(printed("ums", "Table 5"), lambda group, column: _reranked("ubuntu_v1", column)),
    ),
    {},
)

SUITES: dict[str, Suite] = {suite.name: suite for suite in (_DSE, _DIALOGUECSE, _TADSE, _DIAEVAL, _UMS)}
