"""What the tests of the merge on Spark share: a workload on disk, and a merge that runs to its
end."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch.model import MergeCase
from anabranch.sources.compare import check
from anabranch.sources.generate import Workload
from anabranch.sources.publish import FileFormat, Inbox, write_inbox
from anabranch.sources.verdict import Verdict
from anabranch.spark.merge import MergeSpec, prepare, start
from anabranch.spark.progress import Totals


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

    def spec(self, **options: Any) -> MergeSpec:
        return MergeSpec(
            inbox=self.inbox, output=self.output, checkpoint=self.checkpoint, **options
        )

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
        query = start(spark, prepare(self.spec(**options)), once=True)
        query.wait()
        return query.totals

    def check(self, **options: Any) -> Verdict:
        return check(self.output, self.truth, **options)
