"""What the files of an inbox show of properties: as the model does, and the first place."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.batch.batch import Batch
from anabranch.batch.codec import encode, from_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.checker.gather import Refusals
from anabranch.checker.observed import (
    ALIVE_TWICE,
    held_so_far,
    observe_inbox,
)
from anabranch.errors import FileError, SchemaError
from anabranch.model.element import Adjust, Insert, Stable
from anabranch.model.notation import parse
from anabranch.model.properties import PROPERTIES, MergeCase, StreamProperties, observe
from anabranch.model.time import FOREVER
from anabranch.sources.files import look
from anabranch.sources.inbox import declared, require_inbox
from anabranch.testing.strategies import replicas

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema({"a": pa.string()}))


def write(inbox, name, *parts, note=None, seq=None):
    """A replica with one file per part."""
    folder = Path(inbox) / name
    folder.mkdir(parents=True)
    for number, elements in enumerate(parts):
        batch = from_elements(elements, SCHEMA)
        if seq is not None:
            times = (batch.start, batch.end, batch.old_end)
            numbered = ElementSchema(SCHEMA.time, SCHEMA.payload, has_seq=True)
            numbers = np.array(seq, np.int64)
            batch = Batch(numbered, batch.kind, *times, batch.payload, numbers)
        pq.write_table(encode(batch), folder / f"part-{number}.parquet")
    if note is not None:
        (folder / "_replica.json").write_text(json.dumps({"properties": note}))
    return Path(inbox)


def seen(inbox):
    refusals = Refusals(0, strict=False)
    found = observe_inbox(look(inbox), refusals=refusals)
    assert refusals.count == 0
    return found


def breaks(inbox, replica="east"):
    return {one.property: (one.file, one.row, one.what) for one in seen(inbox)[replica].breaks}


starts, lengths = st.integers(0, 4), st.integers(0, 3)
letters = st.sampled_from("ab")


@st.composite
def careless(draw):
    """Elements that often repeat an identity, and now and then break a promise."""
    kind, payload, start = draw(st.sampled_from("iias")), draw(letters), draw(starts)
    end, old_end = start + draw(lengths), start + draw(lengths)
    if kind == "s":
        return Stable(draw(st.integers(0, 2)))
    if kind == "i":
        return Insert(payload, start, end)
    return Adjust(payload, start, old_end, end)


several = st.one_of(
    st.sampled_from(MergeCase).flatmap(lambda case: replicas(case=case, truncated=True)),
    st.lists(st.lists(careless(), max_size=8), min_size=1, max_size=3),
)


@given(several)
def test_the_files_show_what_the_model_observes(streams):
    with tempfile.TemporaryDirectory() as inbox:
        for number, stream in enumerate(streams):
            half = len(stream) // 2
            write(inbox, f"r{number}", stream[:half], stream[half:])
        found = seen(inbox)
    assert held_so_far(found) == observe(streams)
    for number, stream in enumerate(streams):
        alone, mine = observe([stream]), found[f"r{number}"]
        assert mine.elements == len(stream)
        for name in PROPERTIES:
            if name != "ties_in_same_order":
                assert mine.holds[name] == getattr(alone, name)


@given(several)
def test_each_break_is_the_first(streams):
    """Up to the element before the break the property holds, with it no more."""
    with tempfile.TemporaryDirectory() as inbox:
        for number, stream in enumerate(streams):
            write(inbox, f"r{number}", stream)
        found = seen(inbox)
    for number, stream in enumerate(streams):
        for one in found[f"r{number}"].breaks:
            if one.property != "ties_in_same_order":
                before, after = stream[: one.row - 1], stream[: one.row]
                assert getattr(observe([before]), one.property)
                assert not getattr(observe([after]), one.property)


def test_the_place_and_the_words_of_each_break(tmp_path):
    first = parse("insert a 3..9; stable 1; insert b 3..4")
    second = parse("insert a 3..5; adjust b 3..4->6; insert c 2..9")
    assert breaks(write(tmp_path, "east", first, second)) == {
        "strictly_increasing": (
            "east/part-0.parquet",
            3,
            "starts at 3, after an insert that starts at 3",
        ),
        "keyed": ("east/part-1.parquet", 1, ALIVE_TWICE),
        "insert_only": ("east/part-1.parquet", 2, "is an adjust"),
        "ordered": (
            "east/part-1.parquet",
            3,
            "starts at 2, after an insert that starts at 3",
        ),
        "ties_in_same_order": (
            "east/part-1.parquet",
            3,
            "starts at 2, after an insert that starts at 3",
        ),
    }


def test_an_event_that_was_removed_may_come_back(tmp_path):
    elements = parse("insert a 3..9; adjust a 3..9->3; insert a 3..5; adjust a 3..5->8")
    assert "keyed" not in breaks(write(tmp_path, "east", elements))


def test_ties_are_compared_between_replicas(tmp_path):
    write(tmp_path, "east", parse("insert a 1..2; insert b 1..3; insert c 2..3"))
    write(tmp_path, "west", parse("insert a 1..2; insert b 1..4; insert x 2..3"))
    write(tmp_path, "zulu", parse("insert a 1..2"))
    assert [*breaks(tmp_path, "east")] == ["strictly_increasing"]
    assert breaks(tmp_path, "west")["ties_in_same_order"] == (
        "west/part-0.parquet",
        2,
        "is another event than 'east' has as number 2 of start 1",
    )
    assert breaks(tmp_path, "zulu") == {}


def test_a_replica_with_one_event_per_start_may_still_disagree(tmp_path):
    write(tmp_path, "east", parse("insert a 1..2; insert b 1..2"))
    write(tmp_path, "west", parse("insert b 1..2"))
    found = seen(tmp_path)
    assert found["west"].holds["strictly_increasing"]
    assert not found["west"].holds["ties_in_same_order"]
    assert not held_so_far(found).ties_in_same_order
    assert held_so_far({}) == StreamProperties()


def test_seq_is_the_order_and_what_comes_again_is_left_out(tmp_path):
    elements = parse("insert b 2..9; insert a 1..9; insert b 2..9")
    write(tmp_path, "east", elements, seq=[2, 1, 2])
    assert breaks(tmp_path) == {}
    assert seen(tmp_path)["east"].elements == 2


def test_an_empty_replica_breaks_nothing(tmp_path):
    write(tmp_path, "east", [])
    write(tmp_path, "west", parse("insert a 1..2"))
    assert breaks(tmp_path, "east") == {}
    assert held_so_far(seen(tmp_path)) == StreamProperties(
        insert_only=True, strictly_increasing=True
    )


def test_an_empty_replica_with_seq(tmp_path):
    write(tmp_path, "east", [], seq=[])
    assert breaks(tmp_path) == {}


def test_declarations_are_read_from_the_notes(tmp_path):
    write(tmp_path, "east", parse("insert a 1..2"), note={"keyed": True})
    write(tmp_path, "north", parse("insert a 1..2"), note={})
    write(tmp_path, "west", parse("insert a 1..2"))
    write(tmp_path, "gone", parse("insert b 1..2; insert a 0..2"))
    (tmp_path / "gone" / "_detached").touch()
    shown = declared(look(tmp_path))
    assert shown == {"east": StreamProperties(keyed=True), "north": None, "west": None}
    assert sorted(seen(tmp_path)) == ["east", "north", "west"]


def test_a_wrong_declaration_is_among_the_breaks(tmp_path):
    write(tmp_path, "east", parse("insert a 2..3; insert b 1..forever"))
    found = seen(tmp_path)["east"]
    broken = found.broken(StreamProperties(ordered=True, keyed=True))
    assert [one.property for one in broken] == ["ordered"]
    assert found.to_dict()["properties"]["keyed"] is True
    assert parse("insert b 1..forever")[0].end == FOREVER


def test_an_unknown_property_is_named(tmp_path):
    write(tmp_path, "east", parse("insert a 1..2"), note={"sorted": True})
    with pytest.raises(SchemaError, match=r"east/_replica.json: property 'sorted' is True"):
        declared(look(tmp_path))


def test_only_an_inbox_has_replicas(tmp_path):
    write(tmp_path, "east", parse("insert a 1..2"))
    require_inbox(look(tmp_path))
    with pytest.raises(FileError, match="is a stream, expected an inbox"):
        require_inbox(look(tmp_path / "east"))
