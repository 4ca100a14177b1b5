"""A decision of a policy that picks from a menu: what is listed of the menu, on its page and in its table."""

import pytest

from meshwright.cli import run_command_line
from meshwright.live.web.pages import decision_page

from ..replay.past import Past, planners, request


@pytest.mark.parametrize("deadline_s", [None, 1e6])
def test_a_decision_says_what_of_the_menu_is_listed_and_what_was_taken_in_its_place(folder, tmp_path, capsys, deadline_s):
    past = Past(planners(folder, "menu:fixed-16"), file=tmp_path / "s.db")
    past.take()
    made = past.controller.decide(request(0, 100, job="alexnet", deadline_s=deadline_s)).decision
    assert "beats in time and in devices, so that one was taken" in made.why
    fit = "fit what is free" + ("" if deadline_s is None else " and meet the deadline")
    message = f"isted are the layouts of the menu that {fit}, without those that another one beats in time and in devices"
    page = decision_page(past.store, past.controller.planners.cluster, past.store.decision(made.id))
    assert message in page
    assert "so that one was taken" in page
    past.store.close()
    assert run_command_line(["history", "decisions", made.id, "--state", str(tmp_path / "s.db")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert message in shown
    assert "so that one was taken" in shown
