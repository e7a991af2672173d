"""Merges, alone and behind a table of keys, as an `Engine` runs them, and their references.

Each is made from the options of `engine`, which a case file writes as text too.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from anabranch.batch.schema import ElementSchema
from anabranch.errors import UsageError, ViolationError
from anabranch.model.element import Element
from anabranch.model.notation import show_element
from anabranch.model.properties import MergeCase
from anabranch.operators.by_key.keyed import KeyedOperator
from anabranch.operators.contract import (
    Attach,
    Bucket,
    ControlEntry,
    Detach,
    Gap,
    NewSettings,
    Operator,
    Outcome,
    Released,
)
from anabranch.operators.key import Key
from anabranch.operators.merge.choose import choose
from anabranch.operators.merge.merge import MergeOperator
from anabranch.operators.merge.policy import DEFAULT, Policy, Violations
from anabranch.operators.reference.keyed import Keys
from anabranch.operators.reference.membership import Change
from anabranch.operators.reference.ordered import MergeR0, MergeR1, MergeR2
from anabranch.operators.reference.r3 import MergeR3
from anabranch.operators.reference.r4 import MergeR4
from anabranch.testing.backends import time_of

Options = Mapping[str, Any]


@dataclass(frozen=True)
class KeyOf:
    """The key of a payload that has these columns; it pickles."""

    keys: tuple[str, ...]
    columns: tuple[str, ...]

    @classmethod
    def of(cls, options: Options) -> "KeyOf":
        """`keys` and `columns` are names separated by spaces; the one column is `payload`."""
        keys, columns = options.get("keys", ""), options.get("columns", "payload")
        return cls(tuple(keys.split()), tuple(columns.split()))

    def __call__(self, payload: Hashable) -> Hashable:
        """The values of these columns."""
        values = payload if isinstance(payload, tuple) else (payload,)
        return tuple(dict(zip(self.columns, values, strict=True))[name] for name in self.keys)


@dataclass(frozen=True)
class MergeOptions:
    """The case, None if it is to be found, and the policy."""

    case: MergeCase | None
    policy: Policy

    @classmethod
    def read(cls, options: Options) -> "MergeOptions":
        """From the keywords of `engine`."""
        case, policy = options.get("case", "auto"), options.get("policy", DEFAULT)
        unknown = sorted(options.keys() - {"case", "policy"})
        if unknown:
            message = f"engine: merge has no option {unknown[0]!r}; it has case and policy"
            raise UsageError(message)
        return cls(
            None if case == "auto" else MergeCase(case),
            Policy.parse(policy) if isinstance(policy, str) else policy,
        )


def merge_of(schema: ElementSchema, options: Options) -> Operator:
    """The merge with these options."""
    asked = MergeOptions.read(options)
    choice = choose({"any": None}, gaps_possible=asked.policy.gaps, asked=asked.case)
    return MergeOperator.of(schema, choice, asked.policy)


@dataclass
class MergeReference:
    """The reference of a case, with what becomes of violations decided at the end of a step."""

    merge: Any
    policy: Policy

    @classmethod
    def of(cls, options: Options) -> "MergeReference":
        """Where no case is asked for, that of bags: it takes whatever comes."""
        asked = MergeOptions.read(options)
        policy, case = asked.policy, asked.case or MergeCase.R4
        common: dict[str, Any]
        common = {"stable_lag": policy.stable_lag, "promote": policy.promote}
        if case in (MergeCase.R3, MergeCase.R4):
            reference = MergeR3 if case is MergeCase.R3 else MergeR4
            return cls(reference(policy=replace(policy, violations=Violations.IGNORE)), policy)
        ordered: dict[MergeCase, Any]
        ordered = {MergeCase.R0: MergeR0, MergeCase.R1: MergeR1, MergeCase.R2: MergeR2}
        return cls(ordered[case](**common), policy)

    def control(self, entry: ControlEntry) -> tuple[Sequence[Element], Sequence[Released]]:
        """An input comes or leaves."""
        change: Change
        if isinstance(entry, Attach):
            change = self.merge.attach(
                entry.input, guarantee=time_of(entry), attachment=entry.attachment
            )
        elif isinstance(entry, Detach):
            change = self.merge.detach(entry.input)
        elif isinstance(entry, NewSettings):
            change = self.merge.change(Policy.parse(entry.settings))
        else:
            change = self.merge.pass_over(entry.input)
        return change

    @property
    def conflicts(self) -> int:
        """Events that a deciding replica denies although the output had promised them."""
        return int(self.merge.conflicts)

    @property
    def gaps(self) -> Sequence[Gap]:
        """What deciding replicas never mentioned; ordered merges do not look for it."""
        found = getattr(self.merge, "missing", ())
        return [Gap(name, int(start), payload) for name, (start, payload) in found]

    @property
    def live(self) -> int:
        """Identities that may still change; of an ordered merge, inserts that are held."""
        if isinstance(self.merge, MergeR4):
            return len(self.merge.nodes)
        return sum(len(one.held) for one in self.merge.replicas.values())

    def check(self) -> None:
        """Assert the invariants of R3 and R4; the others state none."""
        if isinstance(self.merge, MergeR4):
            self.merge.check()

    def push(self, name: str, element: Element) -> Outcome:
        """Take the next element of a replica."""
        outcome: Outcome = self.merge.push(name, element)
        return outcome

    def violators(self, found: Sequence[tuple[str, Element, Outcome]]) -> Sequence[str]:
        """The replicas that the policy detaches; `raise` raises."""
        wrong = [one for one in found if one[2].bucket is Bucket.VIOLATION]
        if not wrong or self.policy.violations is Violations.IGNORE:
            return ()
        if self.policy.violations is Violations.RAISE:
            name, element, outcome = wrong[0]
            message = f"{name!r}: {show_element(element)}: {outcome.reason.text}"
            raise ViolationError(message)
        return tuple(dict.fromkeys(name for name, _, _ in wrong))


def keyed_of(schema: ElementSchema, options: Options) -> Operator:
    """A merge whose inputs have one event per key; its case is R3 unless another is asked."""
    key, rest = _key_of(options)
    return KeyedOperator(merge_of(schema, {"case": "r3", **rest}), key)


def _key_of(options: Options) -> tuple[Key, Options]:
    """`keys` are names of columns separated by spaces, `duplicates` is violation or drop."""
    duplicates = options.get("duplicates", "violation")
    if duplicates not in ("violation", "drop"):
        message = f"engine: duplicates is {duplicates!r}; it is violation or drop"
        raise UsageError(message)
    names = KeyOf.of(options).keys
    key = Key(names, bool(options.get("with_start", False)), drops=duplicates == "drop")
    own = {"keys", "duplicates", "with_start"}
    return key, {name: value for name, value in options.items() if name not in own}


@dataclass
class KeyedReference(MergeReference):
    """A merge behind a table of keys."""

    key: Key
    keys: Keys
    attachments: dict[str, int] = field(default_factory=dict)

    @classmethod
    def typed(cls, payload: pa.Schema, options: Options) -> "KeyedReference":
        """The reference for these columns."""
        key, rest = _key_of(options)
        behind = MergeReference.of({"case": "r3", **rest})
        keys = Keys(KeyOf(key.columns, tuple(payload.names)), with_start=key.with_start)
        return cls(behind.merge, behind.policy, key, keys)

    def control(self, entry: ControlEntry) -> tuple[Sequence[Element], Sequence[Released]]:
        """An input comes or leaves, and its keys with it."""
        if isinstance(entry, Attach):
            known = self.attachments.get(entry.input, entry.attachment)
            self.attachments[entry.input] = max(known, entry.attachment)
            if entry.attachment > known:
                self.keys.forget(entry.input)
        elif isinstance(entry, Detach):
            self.keys.forget(entry.input)
        return super().control(entry)

    def push(self, name: str, element: Element) -> Outcome:
        """Take the next element of a replica, unless it repeats a key."""
        if self.keys.repeats(name, element):
            return Outcome(self.key.reason)
        return super().push(name, element)
