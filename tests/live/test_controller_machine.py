"""A controller on a ledger against one in memory: any calls in any order, and the invariants after each of them."""

from __future__ import annotations

import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from meshwright.errors import ConflictError, MeshwrightError
from meshwright.live.deciding import Planners
from meshwright.live.decisions import JobRequest, Observation
from meshwright.live.records.retention import give_up
from meshwright.live.sources.listings import Listing
from meshwright.live.state import occupancy

from ..draws import draws
from ..oracles.memory_store import MemoryStore
from .controller_samples import Clock, controller, forget_snapshots
from .live_samples import listings


class ControllerMachine(RuleBasedStateMachine):
    """Requests, hand-overs, listings, late leases and restarts in any order, on a ledger, and the same on the model."""

    planners: Planners

    decisions = Bundle("decisions")

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.clock, self.answers, self.number = Clock(), {}, 0

    @initialize(whole_hosts=st.booleans())
    def begin(self, whole_hosts):
        self.options = {"whole_hosts": whole_hosts}
        self.real = controller(self.folder / "state.db", self.planners, self.clock, **self.options)
        self.model = controller(MemoryStore(), self.planners, self.clock, **self.options)

    def both(self, call):
        """Do something to both; they agree on what comes of it."""
        results = []
        for one in (self.real, self.model):
            try:
                results.append(("did", call(one)))
            except MeshwrightError as error:
                results.append(("refused", type(error)))
        (kind, result), (other_kind, other) = results
        assert kind == other_kind
        return (result, other) if kind == "did" else None

    @rule(target=decisions, steps=st.integers(1, 3), most=st.sampled_from([1, 2, 4]), has_key=st.booleans())
    def decide(self, steps, most, has_key):
        self.number += 1
        request = JobRequest(job="zoo:alexnet", steps=steps, max_devices=most)
        key = f"k{self.number}" if has_key else None
        real, model = self.both(lambda one: one.decide(request, key))
        assert real.decision.outcome == model.decision.outcome
        assert (real.decision.plan is None) == (model.decision.plan is None)
        if real.decision.plan is not None:
            assert real.decision.plan["ranks"] == model.decision.plan["ranks"]
        if key is not None:
            self.answers[key] = (request, real.decision.model_dump_json())
        return (real.decision.id, model.decision.id)

    @rule(which=st.integers(0, 30))
    def ask_again(self, which):
        if f"k{which}" in self.answers:
            request, answer = self.answers[f"k{which}"]
            if self.real.store.old_key(f"k{which}") is not None:
                assert self.model.store.old_key(f"k{which}") is not None
                with pytest.raises(ConflictError, match="kept no more"):
                    self.real.decide(request, f"k{which}")
                return
            assert self.real.decide(request, f"k{which}").decision.model_dump_json() == answer
            with pytest.raises(ConflictError, match="steps"):
                self.real.decide(request.model_copy(update={"steps": request.steps + 1}), f"k{which}")

    @rule(names=decisions, job=st.sampled_from(["100", "101"]))
    def confirm(self, names, job):
        self.both(lambda one: one.confirm(names[one is self.model], job))

    @rule(target=decisions, names=consumes(decisions))
    def release(self, names):
        self.both(lambda one: one.release(names[one is self.model], "done"))
        return multiple()

    @rule(names=decisions, seconds=st.floats(0.1, 9.0))
    def observe(self, names, seconds):
        result = self.both(lambda one: one.observe(names[one is self.model], [Observation(step=1, step_s=seconds)]))
        assert result is None or result[0] == result[1]

    @rule(listing=listings(), names=st.one_of(st.none(), decisions))
    def list_all(self, listing, names):
        def of(one):
            of_decision = names[one is self.model] if names is not None else None
            jobs = [job.model_copy(update={"decision": of_decision}) if n == 0 else job for n, job in enumerate(listing.jobs)]
            return Listing(listing.model_copy(update={"jobs": tuple(jobs)}))

        self.both(lambda one: len(one.take(of(one), one.handed_over())[1]))

    @rule(seconds=st.sampled_from([1.0, 20.0]), wall_h=st.sampled_from([0, -5, 7]))
    def wait(self, seconds, wall_h):
        self.clock.elapsed_s += seconds
        self.clock.now += timedelta(hours=wall_h)
        self.both(lambda one: len(one.expire()))

    @rule(days=st.sampled_from([-1, 1]), forgets_keys=st.booleans())
    def give_up_the_past(self, days, forgets_keys):
        """All of it, but what holds devices, or nothing; keys that were given up are known after it, or not."""
        now = datetime.now(UTC) + timedelta(days=days)

        def given_up(store):
            message, store.now = store.now, store.now if forgets_keys else now.isoformat
            result = give_up(store, 0, now)
            store.now = message
            return result

        real, model = (given_up(one.store) for one in (self.real, self.model))
        assert real.num_keys == model.num_keys
        for key in list(self.answers):
            known = [
                (one.store.old_key(key) is not None, one.store.decision_of_key(key) is not None)
                for one in (self.real, self.model)
            ]
            assert known[0] == known[1]
            if known[0] == (False, False):
                del self.answers[key]  # it is free again
        assert (real.num_changes, real.num_decisions) == (model.num_changes, model.num_decisions)
        assert self.real.store.floor().seq == self.model.store.floor().seq
        assert len(self.real.store.decisions(None, 1000)) == len(self.model.store.decisions(None, 1000))

    @rule()
    def restart(self):
        self.real.close()
        self.real = controller(self.folder / "state.db", self.planners, self.clock, **self.options)
        self.model = controller(self.model.store, self.planners, self.clock, **self.options)

    @rule()
    def forget_the_snapshots(self):
        before = self.real.store.last()
        forget_snapshots(self.real.store)
        assert self.real.store.last() == before

    @invariant()
    def no_device_is_promised_twice_and_both_agree(self):
        if not hasattr(self, "real"):
            return
        (seq, state), (other_seq, other) = self.real.store.last(), self.model.store.last()
        assert seq == other_seq
        occupancy(state, self.real.cluster)  # refuses two jobs on one device
        assert [(job.source, job.devices, job.confirmed_as) for job in state.jobs] == [
            (job.source, job.devices, job.confirmed_as) for job in other.jobs
        ]

    def teardown(self):
        if hasattr(self, "real"):
            self.real.close()
        shutil.rmtree(self.folder)


def test_a_controller_on_a_ledger_keeps_its_invariants_and_does_what_the_model_does(planners):
    ControllerMachine.planners = planners
    run_state_machine_as_test(ControllerMachine, settings=draws(40, stateful_step_count=50, deadline=None))
