"""Numbers for the groups of an operator of one input, by which a state is saved in parts.

A group gets a number when it gets its first event, and loses it with its last; the next one
that it gets is another.  Numbers rise for ever and are kept in blocks: so a block is filled
once, then only changed, and is gone when the last of its groups is.
"""

import numpy as np

from anabranch.batch.batch import Ints, Mask
from anabranch.batch.store import grown
from anabranch.operators.state_parts import BLOCK, BLOCK_BITS, Blocks


class Numbers:
    """The number of each group that has events, and the groups of each block."""

    def __init__(self) -> None:
        self.blocks = Blocks.none()
        self.next = 0
        self._number: Ints = np.empty(0, np.int64)
        self._groups: dict[int, Ints] = {}

    def __repr__(self) -> str:
        return f"Numbers(the next is {self.next}, {self.blocks!r})"

    def note(self, groups: Ints, was: Mask, now: Mask, mark: int) -> None:
        """These groups were written: which of them had events, and which have some now."""
        gone = self._number_of(groups[was & ~now])
        self.blocks.remove(gone, mark)
        for block in np.setdiff1d(gone >> BLOCK_BITS, self.blocks.with_rows).tolist():
            self._groups.pop(block, None)
        self.blocks.change(self._number_of(groups[was & now]), mark)
        new = groups[~was & now]
        numbers = self.next + np.arange(len(new))
        self.next += len(new)
        self.blocks.add(numbers, mark)
        self._give(new, numbers)

    def move(self, groups: Ints, new: Ints) -> None:
        """These groups have other ids now, and there are no others."""
        numbers = self._number_of(groups)
        self._groups = {}
        self._give(new, numbers)

    def restore(self, numbers: Ints, upcoming: int, blocks: Blocks) -> None:
        """Let the groups 0, 1, ... have these numbers, which were saved in these blocks."""
        self.next, self.blocks = upcoming, blocks
        self.blocks.hold(numbers)
        self._give(np.arange(len(numbers)), numbers)

    def of_block(self, block: int, size: Ints) -> tuple[Ints, Ints]:
        """The numbers of a block, rising, and their groups; `size` is that of each group."""
        groups = self._groups[block]
        numbers = (block << BLOCK_BITS) + np.arange(BLOCK)
        known = groups >= 0
        groups, numbers = groups[known], numbers[known]
        stays = (self._number[groups] == numbers) & (size[groups] > 0)
        return numbers[stays], groups[stays]

    def forget(self, since: int, mark: int) -> None:
        """All is saved up to `mark`, and nobody will ask again what was empty at `since`."""
        self.blocks.forget(since, mark)

    def check(self, size: Ints) -> None:
        """Assert that just the groups with events have numbers."""
        groups = np.flatnonzero(size)
        numbers = self._number_of(groups)
        self.blocks.check(numbers)
        assert len(np.unique(numbers)) == len(numbers), f"a number twice: {self!r}"
        assert (numbers < self.next).all(), f"a number was not given: {self!r}"
        for block in np.unique(numbers >> BLOCK_BITS).tolist():
            mine, found = self.of_block(block, size)
            assert (self._number[found] == mine).all(), f"a group is lost: {self!r}"
            assert len(mine) == (numbers >> BLOCK_BITS == block).sum(), f"lost: {self!r}"

    def _number_of(self, groups: Ints) -> Ints:
        numbers: Ints = self._number[groups]
        return numbers

    def _give(self, groups: Ints, numbers: Ints) -> None:
        if not len(groups):
            return
        self._number = grown(self._number, int(groups.max()) + 1)
        self._number[groups] = numbers
        order = np.argsort(numbers, kind="stable")
        blocks, first = np.unique(numbers[order] >> BLOCK_BITS, return_index=True)
        for block, rows in zip(blocks.tolist(), np.split(order, first[1:]), strict=True):
            if block not in self._groups:
                self._groups[block] = np.full(BLOCK, -1, np.int64)
            self._groups[block][numbers[rows] & (BLOCK - 1)] = groups[rows]
