"""What the documentation lists is what there is."""

from pathlib import Path

from turnwise.evaluation.protocols import PROTOCOLS, TASKS
from turnwise.evaluation.suites import SUITES

DOCS = Path(__file__).parents[1] / "docs"


def test_every_data_set_is_listed() -> None:
    listed = (DOCS / "evaluation-data.md").read_text(encoding="utf-8")
    for protocol in PROTOCOLS.values():
        for name, dataset in protocol.datasets(None).items():
            row = f"| `{name}` | `{dataset.folder}` | {dataset.licence} |"
            assert row in listed, name
            assert dataset.differs in listed, name


def test_every_suite_and_task_is_told() -> None:
    told = (DOCS / "evaluation.md").read_text(encoding="utf-8")
    assert [suite for suite in SUITES if f"`{suite}`" not in told] == []
    assert [task for task in TASKS if task not in told] == []
    assert [suite for suite in SUITES if not (DOCS / "results" / f"{suite}.md").is_file()] == []
