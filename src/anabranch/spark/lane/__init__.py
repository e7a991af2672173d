"""What a lane does in a trigger: parcels in, the steps of its pipeline, state, rows out."""
