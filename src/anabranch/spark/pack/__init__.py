"""From input to parcels: the rows of DataFrames and the files of inboxes, packed for lanes."""
