"""The pictures of merge_r3.case: the reference says just that, the kernel the net of it."""

from itertools import groupby
from pathlib import Path

import pytest
from merge_driver import Kernel, Reference

from anabranch.model.history import History, replay
from anabranch.testing.cases import load_cases

CASES = load_cases(Path(__file__).parents[1] / "cases" / "merge_r3.case")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_reference_says_what_the_picture_says(case):
    merge = Reference()
    for arrived, expected in case.steps():
        said = [out for name, element in arrived for out in merge.take(name, [element])]
        assert said == list(expected), case.description
    assert History.of(merge.output) == case.history, case.description


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_kernel_says_the_net_change_of_each_column(case):
    merge = Kernel()
    expected_so_far = []
    for arrived, expected in case.steps():
        expected_so_far += expected
        grouped = groupby(arrived, key=lambda one: one[0])
        merge.step([(name, [e for _, e in some]) for name, some in grouped])
        assert replay(merge.output) == replay(expected_so_far), case.description
        assert len(merge.output) <= len(expected_so_far), case.description
    assert History.of(merge.output) == case.history, case.description
