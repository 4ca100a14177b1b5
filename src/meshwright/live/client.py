"""`Client`: the controller's calls, made to a service over HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from ..errors import ConfigError, ConflictError, InputFileError, MeshwrightError, StateError
from ..plans import PlacementPlan
from .decisions import JobDecision, JobRequest, KeptDecision, Mention, Observation
from .sources.connections import ADDRESSES, exchange, is_address

WAIT_S = 30.0
"""Longest wait for an answer."""

PREPARE_S, POLL_S = 3600.0, 0.5
"""Longest wait for a new job to be priced, and between two looks at it."""
OBSERVATIONS_AT_A_TIME = 1000


class Client:
    """See the module.

    Args:
        url: ``http://HOST:PORT``, ``https://HOST:PORT``, or ``unix:PATH`` of a socket file.
        token: that the service knows; None where it wants none.

    Raises:
        ConfigError: no such URL.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        if not is_address(url):
            raise ConfigError(f"must be {ADDRESSES}", field="url", value=url)
        self._url = url.rstrip("/")
        self._token = token

    def decide(self, request: JobRequest, key: str | None = None) -> KeptDecision:
        """Decide through the service, as `Controller.decide` does; waits for a job that is new.

        Args:
            request: the job.
            key: by which the same request gets the same answer again.

        Raises:
            ConflictError: the key is that of another request.
            MeshwrightError: the job is wrong, or nothing was decided for another reason.
        """
        headers = {} if key is None else {"Idempotency-Key": key}
        answer = self._ask("POST", "/v1/decisions", request.model_dump(mode="json", exclude_none=True), headers)
        until_s = time.monotonic() + PREPARE_S
        name = str(answer["id"])
        view = self.view(name)
        while view["status"] == "preparing":
            if time.monotonic() > until_s:
                raise InputFileError(f"the job was not priced within {PREPARE_S:g} s; it continues", file=self._url, value=name)
            time.sleep(POLL_S)
            view = self.view(name)
        record = self.record_of(view)
        if record.decision.outcome == "failed":
            raise StateError(record.decision.why, file=self._url)  # its field is in the sentence
        return record

    def try_plan(self, request: JobRequest) -> tuple[PlacementPlan | None, str]:
        """Return the plan that a decision would have now, and the reason; nothing is held. A new job may take minutes."""
        body = request.model_dump(mode="json", exclude_none=True)
        answer = self._ask("POST", "/v1/plans", body, wait_s=PREPARE_S)
        plan = answer.get("plan")
        return (None if plan is None else PlacementPlan.model_validate(plan)), str(answer["why"])

    def confirm(self, name: str, scheduler_id: str) -> None:
        """Confirm through the service, as `Controller.confirm` does."""
        self._ask("POST", f"/v1/decisions/{quote(name)}/confirm", {"job_id": scheduler_id})

    def release(self, name: str, reason: str | None = None) -> bool:
        """Release through the service, as `Controller.release` does."""
        before = self.view(name)["status"]
        answer = self._ask("POST", f"/v1/decisions/{quote(name)}/release", {"reason": reason})
        return bool(before != answer["status"])

    def observe(self, name: str, observed: Sequence[Observation]) -> int:
        """Send observations to the service, as `Controller.observe` takes them."""
        new = 0
        for begin in range(0, len(observed), OBSERVATIONS_AT_A_TIME):
            rows = [one.model_dump(mode="json") for one in observed[begin : begin + OBSERVATIONS_AT_A_TIME]]
            new += int(self._ask("POST", f"/v1/decisions/{quote(name)}/observations", rows)["new"])
        return new

    def whole_plan(self, decision: JobDecision) -> PlacementPlan | None:
        """Return the whole plan from the service, as `Controller.whole_plan` returns it."""
        if decision.plan is None:
            return None
        return PlacementPlan.model_validate(self._ask("GET", f"/v1/decisions/{quote(decision.id)}/plan"))

    def mentions(self, name: str) -> list[Mention]:
        """Return the changes about a decision from the service, as `Controller.mentions` returns them."""
        return self.mentions_of(self.view(name))

    @staticmethod
    def mentions_of(view: dict[str, Any]) -> list[Mention]:
        """Return the history of a decision from its view."""
        return [Mention(**row) for row in view["history"]]

    @staticmethod
    def record_of(view: dict[str, Any]) -> KeptDecision:
        """Return a decision from its view."""
        made = dict(view["decision"])
        made.pop("places", None)
        if "inputs" in made:
            made["inputs"] = {"request": made["request"], **made["inputs"]}
        return KeptDecision(int(view["number"]), view.get("key"), str(view["at"]), JobDecision.model_validate(made))

    def view(self, name: str) -> dict[str, Any]:
        """Return a decision and what became of it, as `web.views.DecisionView` says."""
        return dict(self._ask("GET", f"/v1/decisions/{quote(name)}"))

    def rows(self, limit: int = 100) -> list[dict[str, Any]]:
        """Return the last decisions, the last one first, as `web.views.DecisionRow` says."""
        return list(self._ask("GET", f"/v1/decisions?limit={limit}")["decisions"])

    def cluster(self) -> dict[str, Any]:
        """Return the state of the cluster, as `web.views.ClusterView` says."""
        return dict(self._ask("GET", "/v1/cluster"))

    def _ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, wait_s: float = WAIT_S
    ) -> Any:
        """Return the answer to a request.

        Raises:
            InputFileError: nobody answers, or not in time.
            MeshwrightError: a problem that the service reports.
        """
        sent = {"Content-Type": "application/json", "Accept": "application/json", **(headers or {})}
        if self._token is not None:
            sent["Authorization"] = f"Bearer {self._token}"
        content = None if body is None else json.dumps(body).encode()
        try:
            status, text = exchange(self._url, method, path, sent, body=content, wait_s=wait_s, server="the service")
            data = json.loads(text)
        except InputFileError as error:
            raise error.at(file=self._url) from None
        except ValueError:
            raise InputFileError(f"answers what is no JSON (status {status})", file=self._url) from None
        if status >= 400:
            raise _refusal(data, status, self._url)
        return data


def _refusal(problem: Any, status: int, url: str) -> MeshwrightError:
    """Return the error that a problem is."""
    data = problem if isinstance(problem, dict) else {}
    message = str(data.get("detail") or f"refuses with status {status}")
    field = data.get("field")
    if field and message.startswith(f"{field}: "):
        field = None  # the sentence has it
    kind = ConflictError if status == 409 else StateError if status in (404, 422) else InputFileError
    return kind(message, file=url, field=field)
