"""The state of operators: the data structures that they share, and how they are saved.

    events        the table of live events, with payloads, names and saved blocks
    groups        the events of one input by payload or identity, on `events`
    due_queue     what is due before a time, found without a look at anything else
    final_names   the names of events that are final, for copies that come late
    parts         how a state of events is saved and opened: its control, blocks and names
    blocks        rows by number: a save writes only the blocks that changed
    codec         parts as Arrow streams, with the kind and version of the state

The index by which names are found is `anabranch.batch.index`.
"""
