"""Lanes: parcels in, the steps of a pipeline, state, rows out, once per trigger."""
