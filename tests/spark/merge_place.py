"""What the tests of the merge on Spark share: a workload on disk, and a merge that runs to its
end."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch.checker.compare import check
from anabranch.checker.verdict import Verdict
from anabranch.generator.publish import FileFormat, Inbox, write_inbox
from anabranch.generator.workload import Workload
from anabranch.model import MergeCase
from anabranch.operators.merge.policy import Policy
from anabranch.sources.inbox import inbox
from anabranch.spark.progress import Totals
from anabranch.spark.query.asked import Asked
from anabranch.spark.query.merge import build
from anabranch.spark.run.prepare import Prepared, prepare


@dataclass(frozen=True)
class Place:
    """The folders of one test."""

    root: Path

    @property
    def inbox(self) -> Path:
        return self.root / "inbox"

    @property
    def truth(self) -> Path:
        return self.root / "truth"

    @property
    def output(self) -> Path:
        return self.root / "out"

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    def prepare(
        self,
        case: str = "auto",
        policy: str | None = None,
        output: Path | None = None,
        checkpoint: Path | None = None,
        **options: Any,
    ) -> Prepared:
        """As the command does it: all that is checked before Spark starts."""
        asked = Asked(
            case=None if case == "auto" else MergeCase(case),
            policy=None if policy is None else Policy.parse(policy),
            **{"usual_lanes": 2} | options,
        )
        merged = build([inbox(self.inbox)], asked)
        place = str(checkpoint or self.checkpoint)
        return prepare(merged, place, {}, output=output or self.output)

    def generate(
        self, case: str = "r3", *, file_rows: int = 200, form: str = "parquet", **options: Any
    ) -> None:
        options = {"events": 300, "payload_bytes": 12, "seed": 1} | options
        workload = Workload(case=MergeCase[case.upper()], **options)
        inbox = Inbox(
            path=self.inbox,
            reference=self.truth,
            file_rows=file_rows,
            file_format=FileFormat(form),
        )
        list(write_inbox(workload, inbox))

    def merge(self, spark: Any, **options: Any) -> Totals:
        query = self.prepare(**options).start(spark, once=True)
        query.wait()
        return query.totals

    def check(self, **options: Any) -> Verdict:
        return check(self.output, self.truth, **options)
