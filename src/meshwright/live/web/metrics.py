"""Counters of the service, for Prometheus. No label has unbounded values."""

from __future__ import annotations

import math
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ..ledger import Ledger
from ..service import Service
from ..state import devices_by_state

BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
RATIOS = (0.5, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.5, 2.0)


class Metrics(Collector):
    """The counters of one service, and its current figures; routes count in ``decisions`` and ``ratio``."""

    def __init__(self, service: Service) -> None:
        self._registry = CollectorRegistry()
        self.decisions = Counter(
            "meshwright_decisions", "Decisions that were asked for.", ["outcome", "policy"], registry=self._registry
        )
        self._seconds = Histogram(
            "meshwright_decision_seconds", "Of a decision, by phase.", ["phase"], buckets=BUCKETS_S, registry=self._registry
        )
        self.ratio = Histogram(
            "meshwright_step_time_ratio", "Observed step times over predicted ones.", buckets=RATIOS, registry=self._registry
        )
        self._service = service
        self._registry.register(self)
        self._devices = Gauge("meshwright_devices", "Devices of the cluster.", ["state"], registry=self._registry)
        service.controller.timed = lambda phase, seconds: self._seconds.labels(phase).observe(seconds)

    def text(self, store: Ledger) -> bytes:
        """Return all metrics in Prometheus' text format."""
        for name, number in devices_by_state(store.last()[1], self._service.cluster).items():
            self._devices.labels(name).set(number)
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the current figures."""
        ages = GaugeMetricFamily("meshwright_state_age_seconds", "Since the last listing.", labels=["source"])
        drifts = CounterMetricFamily("meshwright_drift", "Where listings contradicted the state.", labels=["source"])
        failures = CounterMetricFamily("meshwright_source_failures", "Listings that could not be had.", labels=["source"])
        for status in self._service.statuses:
            if math.isfinite(status.age_s):
                ages.add_metric([status.name], status.age_s)
            drifts.add_metric([status.name], status.num_drifts)
            failures.add_metric([status.name], status.num_failures)
        yield from (ages, drifts, failures)
        answered = CounterMetricFamily("meshwright_admission_checks", "Answers to Kueue's Workloads.", labels=["state"])
        for state in ("Ready", "Retry", "Rejected"):
            answered.add_metric([state], self._service.counts[f"kueue {state}"])
        yield answered
        failed = self._service.counts["kueue failures"]
        yield CounterMetricFamily("meshwright_admission_check_failures", "Turns that could not be done.", value=failed)
        late = self._service.pricer.num_timeouts
        yield CounterMetricFamily("meshwright_pricing_timeouts", "Jobs whose pricing took too long.", value=late)
        given_up = CounterMetricFamily("meshwright_given_up", "Records that were too old to be kept.", labels=["kind"])
        for kind in ("changes", "decisions"):
            given_up.add_metric([kind], self._service.counts[f"given up {kind}"])
        yield given_up
        size = self._service.path.stat().st_size
        yield GaugeMetricFamily("meshwright_ledger_bytes", "Of the ledger's file.", value=size)
        expired = self._service.counts["expired"]
        yield CounterMetricFamily("meshwright_reservations_expired", "Not handed over in time.", value=expired)
