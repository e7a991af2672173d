"""What a window query returns on an engine, why, and where two engines differ.

The SECRET model (Botan et al., VLDB 2010) as pure functions over frozen values: *scope*
(which stretch of time), *content* (which tuples), *report* (when a content becomes a result)
and *tick* (what makes the system look).  Only the standard library and `anabranch.model`
are used.

    stream                what arrives: tuples, stables, batches
    scope, report, tick   the dimensions; content is in active and every
    active, every         one window at a time, as in the paper; all windows, as today
    binary                two inputs, two windows (B.2.2)
    engine, profiles      an engine as a frozen value; those that we know
    predict               what is returned
    compare, explain      where engines differ and by which dimension; why each result came
    infer                 the settings of an engine that can only be run
    translate, choose     the same query on another engine; the engines that fit some needs
    machine               predict, fed piece by piece; its state can be saved

The query itself, on Spark and as another engine answers it, is `anabranch.windows_run`.

>>> tuples = [(30, 10), (31, 20), (36, 30), Stable(37)]
>>> print(predict("coral8", size=5, slide=1, tuples=tuples, agg="avg"))
coral8: (10), (15), (20), (30)
"""

from anabranch.model import Stable
from anabranch.windows.aggregate import AGGREGATES
from anabranch.windows.binary import JoinResult, predict_join
from anabranch.windows.choose import Choice, Lack, choose
from anabranch.windows.compare import Comparison, Difference, compare
from anabranch.windows.engine import Engine, Progress, Source
from anabranch.windows.explain import Answer, Explained, Explanation, Reason, explain
from anabranch.windows.inference.answers import Command
from anabranch.windows.inference.asked import Asked, Disagreement, Unanswered
from anabranch.windows.inference.candidates import Space
from anabranch.windows.inference.infer import infer
from anabranch.windows.inference.probes import Probe, Shown
from anabranch.windows.inference.recorded import Recorded
from anabranch.windows.inference.result import Inference, Parameter
from anabranch.windows.inputs import Checked, Inputs
from anabranch.windows.machine.machine import Machine
from anabranch.windows.needs import NEEDS, Need
from anabranch.windows.predict import Prediction, Result, predict
from anabranch.windows.profiles.known import ENGINES, engine
from anabranch.windows.report import Report
from anabranch.windows.scope import Scope, Shape, Start
from anabranch.windows.stream import (
    Arrival,
    in_triggers,
    on_system_time,
    split_batches,
    synchronised,
)
from anabranch.windows.trace import Query
from anabranch.windows.translate import CounterExample, Setting, Translation, translate

__all__ = [
    "AGGREGATES",
    "ENGINES",
    "NEEDS",
    "Answer",
    "Arrival",
    "Asked",
    "Checked",
    "Choice",
    "Command",
    "Comparison",
    "CounterExample",
    "Difference",
    "Disagreement",
    "Engine",
    "Explained",
    "Explanation",
    "Inference",
    "Inputs",
    "JoinResult",
    "Lack",
    "Machine",
    "Need",
    "Parameter",
    "Prediction",
    "Probe",
    "Progress",
    "Query",
    "Reason",
    "Recorded",
    "Report",
    "Result",
    "Scope",
    "Setting",
    "Shape",
    "Shown",
    "Source",
    "Space",
    "Stable",
    "Start",
    "Translation",
    "Unanswered",
    "choose",
    "compare",
    "engine",
    "explain",
    "in_triggers",
    "infer",
    "on_system_time",
    "predict",
    "predict_join",
    "split_batches",
    "synchronised",
    "translate",
]
