"""A store of parts, as a state store keeps them: what is saved is applied, nothing else."""

from dataclasses import dataclass, field

from anabranch.operators.state.blocks import Saved


@dataclass
class Store:
    """The parts that were saved; `sizes` are the bytes that the last save wrote, by part."""

    parts: dict[str, bytes] = field(default_factory=dict)
    mark: int | None = None
    sizes: dict[str, int] = field(default_factory=dict)
    deleted: tuple[str, ...] = ()

    def save(self, state) -> Saved:
        """Write what changed since the last time; again, it is the same."""
        saved = state.parts(since=self.mark)
        again = state.parts(since=self.mark)
        assert (again.written, again.deleted) == (saved.written, saved.deleted)
        self.parts |= saved.written
        for name in saved.deleted:
            self.parts.pop(name, None)
        self.sizes = {name: len(data) for name, data in saved.written.items()}
        self.mark, self.deleted = saved.mark, saved.deleted
        # Nothing is left behind: the store has the parts of a first save, and no other.
        assert set(self.parts) == set(state.parts().written)
        return saved
