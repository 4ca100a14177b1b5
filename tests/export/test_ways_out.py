"""Laws of refusals: the error for a plan of another kind names the command that finds a fitting one."""

import pytest

from meshwright.errors import ExportError
from meshwright.export import export


@pytest.mark.parametrize("target", ["megatron", "torchtitan"])
def test_a_plan_without_a_layout_is_told_the_search_that_finds_one(running_example, target):
    with pytest.raises(ExportError, match=f"`meshwright plan --search --for {target}` finds "):
        export(running_example, target)


@pytest.mark.parametrize("key", ["job", "cluster"])
def test_a_trace_without_a_graph_or_a_cluster_is_told_what_embeds_them(layout_example, key):
    change = {"cluster": None} if key == "cluster" else {"job": layout_example.job.model_copy(update={"graph": None})}
    with pytest.raises(ExportError, match=r"`meshwright plan` and `meshwright plan --ops` embed it"):
        export(layout_example.model_copy(update=change), "chakra")
