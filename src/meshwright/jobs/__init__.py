"""Jobs to run: job graphs, readers of users' formats, the built-in zoo, arrivals."""

from .graph import JobGraph
from .job import Job
from .load import load_graph
from .zoo.catalogue import zoo_graph, zoo_names

__all__ = ["Job", "JobGraph", "load_graph", "zoo_graph", "zoo_names"]
