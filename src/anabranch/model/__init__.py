"""What a stream means, in plain Python: the judge of every faster thing built on it.

* A physical stream is a sequence of elements; a prefix of it stands for a history, a bag of
  events with lifetimes.  Two streams mean the same when their histories are equal.
* A stable freezes a part of the history for good; whether a stream keeps that promise is
  decided here and nowhere else.
* Only the standard library is used.
"""
