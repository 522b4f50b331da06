"""A run as a graph of what waits for what, and the run replayed with other durations.

A node is a moment: a piece of device work ends, a rank arrives at a collective, a collective ends, the host gets on. An
arc says that its target is not before its source plus the arc's weight. The time of a node is the largest sum of
weights over all paths to it, so that replaying is finding longest paths, and the longest of all is the critical path.

* `graph.py`: the graph, times of its nodes, longest paths;
* `rank_graph.py`: one rank's nodes and arcs from its tables, reduced to the parts between synchronisation points;
* `join.py`: the ranks' graphs joined by matched collectives;
* `pace.py`, `peers.py`: the durations that the peers have, of device work, and of hosts and transfers;
* `path.py`: shares of the critical path, and blame along it.
"""
