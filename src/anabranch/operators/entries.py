"""The operators with which a run begins: they validate rows, and a run records which it has.

So a program that finds a run makes its operator again from two texts, and names none itself.

>>> import pyarrow as pa
>>> from anabranch.batch.schema import TimeType
>>> schema = ElementSchema(TimeType.BIGINT, pa.schema({"p": pa.string()}))
>>> recorded(schema, "r3", "stable_lag=2").policy.stable_lag
2
>>> recorded(schema, "union", "default").name, recorded(schema, "query", "default")
('union', None)
"""

from anabranch.batch.schema import ElementSchema
from anabranch.model.properties import MergeCase
from anabranch.operators.contract import Operator
from anabranch.operators.merge.merge import MergeOperator
from anabranch.operators.merge.policy import Policy
from anabranch.operators.union import UnionOperator


def recorded(schema: ElementSchema, label: str, settings: str) -> Operator | None:
    """The operator of a run that recorded this label and these settings; None if unknown."""
    if label in [case.value for case in MergeCase]:
        return MergeOperator.named(schema, label, Policy.parse(settings))
    union = UnionOperator(schema)
    return union if label == union.name else None


def usual(schema: ElementSchema) -> Operator:
    """What most runs begin with: the default merge."""
    return MergeOperator(schema, MergeCase.R3)
