"""What needs all ranks at once: collectives matched across ranks, the clocks that they imply, the steps.

Computed once and kept in the run, in its folder `align`, in the time of each rank's files, so that better clocks never
rewrite it:

* `align/collectives/rank=N.parquet`: the canonical table `collectives` of a rank, from the best evidence there is;
* `align/members.parquet`: which of these operations are one instance (`MEMBERS`);
* `align/steps.parquet`: the training steps of each rank (`STEPS`);
* `align/alignment.json`: what it was made from, clocks, and what a reader must know (`Alignment`).

`alltrace.align.store.aligned(run)` makes it or opens it.
"""
