"""`KueueCheck`: the controller of one AdmissionCheck of Kueue, which polls it.

Each turn lists all Workloads and computes the status of each. Between turns only the store and the API hold state. So a lost,
repeated or late turn changes nothing after the next one, and a service can be started again. A Workload's key is its uid and
generation. After a refusal, or when its devices were given back, the next attempt has a new key, counted up.

Kueue decides on quota and order, we on places. Where Kueue's topology-aware scheduling chooses the nodes we choose none: two
deciders fight. Once a job is admitted, its pods' nodes in listings are the truth; nothing is taken back then.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

import numpy as np

from ...errors import ConfigError, MeshwrightError, StateError
from ..controller import Controller
from ..decisions import DecisionInputs, JobRequest, KeptDecision, free_runs
from ..service import Service
from . import kubernetes_api
from .kueue_objects import (
    CONTROLLER,
    PLAN_LABEL,
    PLANNED,
    CheckAnswer,
    KueueWorkload,
    activated,
    is_active,
    labelled_nodes,
    workloads_of,
)

API = "/apis/kueue.x-k8s.io"
VERSIONS = ("v1beta2", "v1beta1")
"""That we speak, the best one first."""

KEY = "kueue:"
"""Begins the keys of decisions for Workloads."""

MOST_EVERY_S = 5.0
"""Longest time between two turns."""

LOG = logging.getLogger("meshwright.serve")

_HOLDING = ("reserved", "confirmed", "running")


class KueueCheck:
    """See the module.

    Attributes:
        problem: why the last turn could not be done; None where it could.

    Args:
        name: of the AdmissionCheck.
        service: who decides.
    """

    def __init__(self, name: str, service: Service) -> None:
        self.problem: str | None = None
        self._name = name
        self._service = service
        self._may_be_labelled = True

    async def keep_answering(self, every_s: float) -> None:
        """Take a turn every so many seconds, at most `MOST_EVERY_S`, until this is cancelled."""
        while True:
            before, self.problem = self.problem, None
            try:
                await self.turn()
            except MeshwrightError as error:
                self.problem = str(error)
            except Exception as error:
                LOG.exception("admission check %s", self._name)
                self.problem = f"{type(error).__name__} while it was answered"
            self._service.counts["kueue failures"] += self.problem is not None
            await self._say(self.problem)
            if self.problem not in (None, before):
                LOG.warning("admission check %s: %s", self._name, self.problem)
            await asyncio.sleep(min(every_s, MOST_EVERY_S))

    async def _say(self, problem: str | None) -> None:
        """Let the service's page and health say what is wrong, or that nothing is any more."""
        name, problems = f"admission check {self._name}", self._service.problems
        if problems.get(name) != problem:
            problems.pop(name, None)
            problems |= {} if problem is None else {name: problem}
            await self._service.notify()

    async def turn(self) -> None:
        """Answer for every Workload once.

        Raises:
            ConfigError: the AdmissionCheck is another controller's.
            MeshwrightError: the API or the store cannot be used; the next turn does what is left.
        """
        before = await self._service.write(_planned, self._service.controller)
        base = f"{API}/{await asyncio.to_thread(_version)}"
        check = await asyncio.to_thread(kubernetes_api.get, f"{base}/admissionchecks/{self._name}")
        named = (check.get("spec") or {}).get("controllerName")
        if named != CONTROLLER:
            raise ConfigError(f"must be {CONTROLLER}", file=f"AdmissionCheck {self._name}", field="controllerName", value=named)
        listed = await asyncio.to_thread(kubernetes_api.get, f"{base}/workloads")
        workloads, unread = workloads_of(listed, self._name)
        answers = [(one, await self._answer(one)) for one in workloads]
        held = {answer.decision for _, answer in answers if answer is not None and answer.decision is not None}
        hosts = await self._service.write(_renewed, self._service.controller, held)
        await self._label(hosts, only_add=bool(unread))
        for workload, answer in answers:
            if answer is not None and not workload.is_answered(answer):
                await self._report(base, workload, answer)
        if not unread:
            uids = {one.uid for one in workloads}
            if await self._service.write(_release, self._service.controller, before - held, uids):
                await self._service.notify()
        if not is_active(check):
            content = activated(check, datetime.now(UTC))
            await asyncio.to_thread(kubernetes_api.replace, f"{base}/admissionchecks/{self._name}/status", content)
        if unread:
            raise ConfigError(unread[0], file=f"AdmissionCheck {self._name}", field="a Workload")

    async def _report(self, base: str, workload: KueueWorkload, answer: CheckAnswer) -> None:
        """Write an answer, unless somebody else wrote the Workload meanwhile: then the next turn does."""
        content = workload.answered(answer, datetime.now(UTC))
        try:
            await asyncio.to_thread(kubernetes_api.replace, f"{base}/{workload.path}/status", content)
        except StateError as error:  # also one that is gone
            LOG.info("Workload %s: %s", workload.name, error)
            return
        self._service.counts[f"kueue {answer.state}"] += workload.state != answer.state

    async def _label(self, hosts_of: dict[str, list[str]], *, only_add: bool) -> None:
        """Let the planned nodes, and no others, carry the labels of decisions."""
        if not hosts_of and not self._may_be_labelled:
            return
        nodes = await asyncio.to_thread(kubernetes_api.get, "/api/v1/nodes")
        known, labelled = {str(one["metadata"]["name"]) for one in nodes["items"]}, labelled_nodes(nodes)
        for name, hosts in hosts_of.items():
            if missing := sorted(known & set(hosts) - labelled.get(name, set())):  # one may be gone by now
                await asyncio.to_thread(kubernetes_api.label_nodes, missing, PLAN_LABEL + name, PLANNED)
        for name, carriers in () if only_add else labelled.items():
            if surplus := sorted(carriers - set(hosts_of.get(name, ()))):
                await asyncio.to_thread(kubernetes_api.label_nodes, surplus, PLAN_LABEL + name, None)
        self._may_be_labelled = bool(hosts_of) or only_add

    async def _answer(self, workload: KueueWorkload) -> CheckAnswer | None:
        """Return the new status of a Workload and its decision; None leaves it unchanged without a decision."""
        if not workload.may_hold:
            return None
        if workload.state == "Ready":
            return await self._still_ready(workload)
        if workload.state != "Pending":
            return None  # Kueue takes its quota back and asks again
        try:
            num_devices = workload.num_devices
            if workload.is_placed_by_kueue:
                message = "Kueue's topology-aware scheduling chooses its nodes; meshwright holds and pins nothing"
                return CheckAnswer("Ready", message)
            if not num_devices:
                return CheckAnswer("Ready", "wants no devices")
            request = workload.request()
        except MeshwrightError as error:
            return CheckAnswer("Rejected", f"cannot be planned: {error}")
        return await self._decided(workload, request, num_devices)

    async def _still_ready(self, workload: KueueWorkload) -> CheckAnswer | None:
        """Return a Workload that was given places keeps them; where they are lost before it starts, Kueue is to ask again."""
        if workload.updates is None:
            return None
        status, detail = await self._service.write(_standing, self._service.controller, workload.updates)
        if status in _HOLDING or workload.is_admitted:
            return CheckAnswer("Ready", workload.message, workload.updates)
        return CheckAnswer("Retry", f"decision {workload.updates} is {status}" + (f": {detail}" if detail else ""))

    async def _decided(self, workload: KueueWorkload, request: JobRequest | None, num_devices: int) -> CheckAnswer:
        """Return the answer to a Workload that waits for devices."""
        service = self._service
        if workload.named is not None:
            status, _ = await service.write(_standing, service.controller, workload.named)
            if status in _HOLDING:
                return CheckAnswer("Ready", f"planned as decision {workload.named}", workload.named)
        if request is None:
            message = "names no job" if workload.named is None else f"decision {workload.named} holds nothing"
            return CheckAnswer("Ready", f"{message}: continues unplanned")
        if num_devices > service.cluster.num_devices:
            return CheckAnswer("Rejected", f"its pods want {num_devices} devices, the cluster has {service.cluster.num_devices}")
        return await self._placed(workload, request)

    async def _placed(self, workload: KueueWorkload, request: JobRequest) -> CheckAnswer:
        """Return the devices for a Workload that wants some, or why there are none."""
        service, controller = self._service, self._service.controller
        last, key = await service.write(_last_attempt, controller, KEY + workload.key)
        if last is None or not await self._is_current(last, request):
            if service.is_stale():
                return CheckAnswer("Pending", "waits until the cluster is listed")
            if last is not None:  # as long as there is no place nothing more is kept
                tried = await service.try_plan(request)
                if tried.plan is None or not workload.fits(tried.plan):
                    return await self._no_place(workload, tried.inputs, tried.why)
            last = await service.decide(request, key)
        decision = last.decision
        if decision.outcome == "preparing":
            return CheckAnswer("Pending", f"decision {decision.id}: its job is being priced")
        if decision.outcome == "failed":
            return CheckAnswer("Rejected", f"decision {decision.id}: {decision.why}")
        if decision.plan is None:
            return await self._no_place(workload, decision.inputs, decision.why)
        if not workload.fits(decision.plan):
            await service.write(controller.release, decision.id, "the pods of its Workload do not fit the hosts of the plan")
            return await self._no_place(workload, decision.inputs, f"decision {decision.id}: its pods do not fit the hosts")
        return CheckAnswer("Ready", f"decision {decision.id}: {decision.why}"[:300], decision.id)

    async def _is_current(self, last: KeptDecision, request: JobRequest) -> bool:
        """Return whether the last attempt is still the answer: of the same request, and neither refused nor given back."""
        if last.decision.request != request:
            return False
        status, _ = await self._service.write(_standing, self._service.controller, last.decision.id)
        return status in ("preparing", "failed", *_HOLDING)

    async def _no_place(self, workload: KueueWorkload, inputs: DecisionInputs | None, why: str) -> CheckAnswer:
        """Return ``Retry`` where there would be a place on an empty cluster, else ``Rejected``."""
        assert inputs is not None, "it was decided from something"
        nobody = free_runs(np.zeros(self._service.cluster.num_devices))
        empty = await self._service.write(self._service.controller.planners.decide, inputs.model_copy(update={"free": nobody}))
        if empty.plan is None:
            return CheckAnswer("Rejected", f"not even on an empty cluster: {empty.why}")
        if not workload.fits(empty.plan.model_dump(mode="json")):
            return CheckAnswer("Rejected", "its pods do not fit the hosts of a plan, not even on an empty cluster")
        return CheckAnswer("Retry", f"no place now: {why}")


def _version() -> str:
    """Return the version of Kueue's API that both sides speak.

    Raises:
        ConfigError: none.
        MeshwrightError: there is no Kueue.
    """
    served = [one.get("version") for one in kubernetes_api.get(API).get("versions") or ()]
    result = next((version for version in VERSIONS if version in served), None)
    if result is None:
        raise ConfigError(
            f"of Kueue's API, {' and '.join(VERSIONS)} are spoken here", field=API, value=", ".join(map(str, served))
        )
    return result


def _last_attempt(controller: Controller, key: str) -> tuple[KeptDecision | None, str]:
    """Return the last decision for a Workload, None where there is none, and the key of the next one."""
    last, target, number = None, key, 1
    while (result := controller.store.decision_of_key(target)) is not None or controller.store.old_key(target) is not None:
        number += 1
        last, target = result, f"{key}:{number}"
    return last, target


def _standing(controller: Controller, name: str) -> tuple[str, str]:
    """Return the status of a decision, and a detail."""
    record = controller.store.decision(name)
    return ("unknown here", "") if record is None else record.decision.status(controller.mentions(name))


def _renewed(controller: Controller, names: set[str]) -> dict[str, list[str]]:
    """Return the planned hosts of each decision; Kueue has these, so their leases begin anew."""
    for name in names:
        controller.renew(name)
    results = [controller.store.decision(name) for name in sorted(names)]
    return {
        record.decision.id: sorted(record.decision.devices)
        for record in results
        if record is not None and record.decision.plan is not None
    }


def _planned(controller: Controller) -> set[str]:
    """Return the ids of the decisions for Workloads that hold devices, and whose jobs no listing shows."""
    jobs = [job.id for job in controller.store.last()[1].jobs if job.source == "plan"]
    results = [controller.store.decision(name) for name in jobs]
    return {record.decision.id for record in results if record is not None and (record.key or "").startswith(KEY)}


def _release(controller: Controller, names: set[str], uids: set[str]) -> bool:
    """Give back what decisions for Workloads hold; whether any did.

    Args:
        controller: who decided.
        names: of the decisions.
        uids: of the Workloads that there are.
    """
    released = False
    for name in sorted(names & _planned(controller)):
        uid = (controller.stored(name).key or "").removeprefix(KEY).partition(":")[0]
        why = "its Workload has no quota any more" if uid in uids else "its Workload was deleted"
        released |= controller.release(name, why)
    return released
