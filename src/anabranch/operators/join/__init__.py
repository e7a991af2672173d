"""Join: pairs of events with equal keys while both are alive.

operator      the specification
state         the events of both sides that may still matter
pairs         what an element of one side changes, in an inner join
kernel        what it changes in the others
net           the fewest elements for a change
forget        what the frontiers have passed
"""
