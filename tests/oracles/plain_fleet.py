"""A fleet by brute force: jobs, hosts and a queue as objects, loops over everything, Python's own numbers.

Written from what `simulation.fleet` documents. Sizes of parts of hosts and groups are kept as they are (1, 2, 4, ...), where the
compiled simulator keeps their logarithms. Nothing of it is compiled: links are shared by `sharing_reference`, hosts fail by
`plain_player.exponential_s`.
"""

import math
from itertools import pairwise

import numpy as np

from meshwright.simulation.fleet.state import JobState, PlacementRule, SharingMode, Total

from . import sharing_reference
from .plain_fleet_parts import Host, Job, read_menu, rounded_down
from .plain_player import FAILURE, exponential_s

PASS = 0


class PlainFleet:
    """One episode; `play` yields the actions that are possible at each decision and is sent the one chosen."""

    def __init__(self, problem, arrival_s, job_type, num_steps, deadline_s, seed=0):
        self.problem = problem
        network, size = problem.network, problem.network.devices_per_host
        self.menu = read_menu(problem.menu, network.num_sites > 1)
        site = network.group_site[network.host_group]
        groups = zip(
            *(column.tolist() for column in (network.host_group, network.class_group, site, network.host_type)), strict=True
        )
        self.hosts = [Host(i, *of, [None] * size) for i, of in enumerate(groups)]
        rows, links = network.way_first.tolist(), network.way_links.tolist()
        pairs = np.ndindex(network.num_groups, network.num_groups)
        self.ways = {pair: links[rows[i] : rows[i + 1]] for i, pair in enumerate(pairs)}
        self.capacity = network.capacity_bytes_per_s.tolist()
        self.choices = list(zip(map(PlacementRule, problem.rule.tolist()), problem.rule_type.tolist(), strict=True))
        columns = (column.tolist() for column in (job_type, arrival_s, num_steps, deadline_s))
        self.jobs = [Job(number, *of) for number, of in enumerate(zip(*columns, strict=True))]
        self.to_come = list(self.jobs)
        self.waiting: list[Job] = []
        self.running: list[Job] = []
        self.now_s = 0.0
        self.next_round_s, self.in_round = problem.every_s, False
        self.decided: set[Job] = set()
        self.load, self.num_trunks = [0.0] * len(self.capacity), network.num_trunks
        self.totals = dict.fromkeys(Total, 0.0)
        first, numbers = problem.blocks.first_host.tolist(), problem.blocks.hosts.tolist()
        self.blocks = [[self.hosts[number] for number in numbers[a:b]] for a, b in pairwise(first)]
        self.seed = seed
        for host in self.hosts:
            host.turns_at_s = self.time_up(host)

    # Time.

    def play(self):
        while self.to_come or self.running or self.awaits_repair():
            self.next_event()
            self.expire()
            yield from self.decide()
        for job in list(self.waiting):
            self.turn_away(job, JobState.REFUSED)

    def next_event(self):
        arrival_s = self.to_come[0].arrival_s if self.to_come else math.inf
        end_s = min((job.finish_s for job in self.running), default=math.inf)
        restarting = [job for job in self.running if job.since_s > self.now_s]
        was_empty = not self.running and not self.waiting
        round_s = self.next_round_s if self.problem.every_s and not was_empty else math.inf
        turn_s = min(host.turns_at_s for host in self.hosts)
        self.pass_time(min([arrival_s, end_s, round_s, turn_s, *(job.since_s for job in restarting)]))
        if end_s == self.now_s:
            self.end(next(job for job in self.running if job.finish_s == self.now_s))
            self.open_round(is_event=True)
        elif turn_s == self.now_s:
            self.turn(next(host for host in self.hosts if host.turns_at_s == turn_s))
        elif arrival_s == self.now_s:
            job = self.to_come.pop(0)
            job.status = JobState.WAITING
            self.waiting.append(job)
            if was_empty:
                self.next_round_s = self.now_s + self.problem.every_s
            self.open_round(is_event=True)
        elif round_s == self.now_s:
            self.next_round_s += self.problem.every_s
            self.open_round(is_event=False)
        if any(job.since_s == self.now_s for job in restarting):
            self.share()

    def open_round(self, is_event):
        if not is_event or self.problem.at_events:
            self.in_round, self.decided = True, set()

    def pass_time(self, until_s):
        passed = until_s - self.now_s
        assert passed >= 0
        self.now_s = until_s
        self.totals[Total.IN_SYSTEM_S] += passed * (len(self.waiting) + len(self.running))
        self.totals[Total.WAITING_S] += passed * sum(job.start_s is None for job in self.waiting)
        self.totals[Total.OUT_DEVICE_S] += passed * sum(len(host.owners) for host in self.hosts if host.is_out)
        for job in self.running:
            held = passed * sum(host.owners.count(job) for host in self.hosts)
            job.held_device_s += held
            self.totals[Total.HELD_DEVICE_S] += held
            if until_s > job.since_s:
                steps = (until_s - job.since_s) / job.step_s
                job.done += steps
                job.shared_s += steps * (job.step_s - job.alone_s)
                job.since_s = until_s

    def end(self, job):
        job.done = job.steps
        job.status, job.finish_s, job.left_s = JobState.COMPLETED, self.now_s, self.now_s
        self.totals[Total.MET if self.now_s <= job.deadline_s else Total.LATE] += 1
        self.release(job)
        self.share()

    def time_up(self, host):
        return exponential_s(self.problem.mean_failure_s, self.seed, FAILURE, host.number, host.failures)

    def turn(self, host):
        if host.is_out:
            host.is_out, host.turns_at_s = False, self.now_s + self.time_up(host)
            return
        for job in [job for job in self.running if job in host.owners]:
            held, done = job.part * len(job.hosts), job.done
            self.send_back(job)
            job.failures += 1
            job.lost_device_s += max(0.0, done - job.done) * job.step_s * held
        host.failures += 1
        host.is_out, host.turns_at_s = True, self.now_s + self.problem.repair_s
        self.share()

    def awaits_repair(self):
        if not any(host.is_out for host in self.hosts):
            return False
        up = dict.fromkeys(self.hosts, self.problem.network.devices_per_host)
        return any(self.placements(0, job, up) for job in self.waiting[: self.problem.visible_waiting])

    def expire(self):
        for job in list(self.waiting):
            steps = [(s, entry.degree // part) for entry in self.menu[job.kind] for (_, part, _), s in entry.step_s.items()]
            ends = [s * (job.steps - job.done) + self.restart_s(job, hosts) for s, hosts in steps if s < math.inf]
            if self.now_s + min(ends, default=math.inf) > job.deadline_s:
                self.turn_away(job, JobState.EXPIRED)

    def turn_away(self, job, status):
        self.waiting.remove(job)
        job.status, job.left_s = status, self.now_s
        self.totals[Total.BLOCKED] += 1
        return ()

    # Decisions.

    def decide(self):
        while self.is_choice(possible := self.possible()):
            action = yield set(possible)
            if action == PASS:
                break
            what, *about = possible[action]
            yield from what(*about)
        self.in_round = False
        for job in reversed(list(self.waiting)):
            if len(self.waiting) > self.problem.queue_capacity and job.start_s is None:
                self.turn_away(job, JobState.REFUSED)

    def is_choice(self, possible):  # a refusal is one where it brings another job on offer
        more = len(self.waiting) > self.problem.visible_waiting
        return any(more or does[0] != self.turn_away for action, does in possible.items() if action != PASS)

    def possible(self):
        """The effect of each possible action, by action."""
        actions = {PASS: None}
        free = {host: host.free for host in self.hosts}
        for place, job in enumerate(self.waiting[: self.problem.visible_waiting]):
            if len(self.running) < self.problem.max_running:
                actions |= self.placements(place, job, free)
        offered = [job for job in self.running if job not in self.decided and job.since_s <= self.now_s]
        num_offers = self.problem.visible_waiting + self.problem.visible_running
        first_pause = 1 + num_offers * self.problem.entries_per_job * len(self.choices)
        for i, job in enumerate(offered[: self.problem.visible_running] if self.in_round else ()):
            own = free | {host: free[host] + job.part for host in job.hosts}
            actions |= self.placements(self.problem.visible_waiting + i, job, own)
            actions[first_pause + i] = self.pause, job
        if not self.to_come and not self.running and len(actions) > 1:
            del actions[PASS]
        away = first_pause + self.problem.visible_running
        new = self.waiting[: self.problem.visible_waiting] if self.problem.may_refuse else ()
        return actions | {away + i: (self.turn_away, job, JobState.REFUSED) for i, job in enumerate(new) if job.start_s is None}

    def placements(self, place, job, free):
        actions, result = {}, {}
        for number, entry in enumerate(self.menu[job.kind]):
            if job.start_s is not None and not self.problem.min_degree <= entry.degree <= self.problem.max_degree:
                continue
            for choice, (rule, kind) in enumerate(self.choices):
                if rule == PlacementRule.CONSTRUCT:
                    part = self.largest_part(entry.degree)
                    step_s = self.step_of_construction(job, entry, free)
                    does = self.construct, job, entry
                else:
                    if rule == PlacementRule.BLOCKS:
                        part, hosts = self.find_block(job, entry, kind, free)
                    else:
                        key = entry.degree, choice
                        part, hosts = result[key] = result.get(key) or self.find(entry.degree, rule, kind, free)
                    step_s = entry.step_s[kind, part, self.spread(hosts)] if hosts else math.inf
                    does = self.place, job, entry, part, hosts
                again_s = self.restart_s(job, entry.degree // part) if part else 0.0
                end_s = self.now_s + (step_s * (job.steps - job.done) + again_s)
                if step_s < math.inf and (job in self.running or end_s <= job.deadline_s):
                    actions[1 + (place * self.problem.entries_per_job + number) * len(self.choices) + choice] = does
        return actions

    def suits(self, job, entry, host, part):
        if not entry.can_run_on(host.kind, part):
            return False
        best_s = min(s for (k, g, _), s in entry.step_s.items() if (k, g) == (host.kind, part))
        is_running = job.status == JobState.RUNNING
        again_s = self.restart_s(job, entry.degree // part)
        return is_running or self.now_s + (best_s * (job.steps - job.done) + again_s) <= job.deadline_s

    def step_of_construction(self, job, entry, free):
        part = self.largest_part(entry.degree)
        need = entry.degree // part
        hosts = [host for host in self.hosts if free[host] >= part and self.suits(job, entry, host, part)]
        if need > min(len(hosts), self.problem.max_hosts):
            return math.inf
        return min(step_s for (_, g, _), step_s in entry.step_s.items() if g == part)

    def place(self, job, entry, part, hosts):
        if job in self.running:
            self.stop(job)
        self.run(job, entry, part, hosts)
        return ()

    def construct(self, job, entry):
        if job in self.running:
            self.stop(job)
        part = self.largest_part(entry.degree)
        suit = [host for host in self.hosts if host.free >= part and self.suits(job, entry, host, part)]
        picked = []
        while len(picked) < entry.degree // part:
            picked.append(self.hosts[(yield {host.number for host in suit if host not in picked})])
        self.run(job, entry, part, sorted(picked, key=lambda host: host.group))

    def pause(self, job):
        self.send_back(job)
        self.decided.add(job)
        self.share()
        return ()

    def send_back(self, job):
        self.stop(job)
        job.status, job.finish_s = JobState.WAITING, None
        self.waiting = sorted([*self.waiting, job], key=lambda job: job.number)

    # Hosts.

    def largest_part(self, degree):
        part = 1
        while 2 * part <= self.problem.network.devices_per_host and degree % (2 * part) == 0:
            part *= 2
        return part

    def find(self, degree, rule, kind, free):
        """Devices a host and hosts; none where the rule finds none, or `NEAREST` finds what `PACKED` does."""
        part = largest = self.largest_part(degree)
        while True:
            suit = [host for host in self.hosts if host.kind == kind and free[host] >= part]
            need = degree // part
            if need <= min(len(suit), self.problem.max_hosts):
                break
            if rule != PlacementRule.NEAREST or part == 1:
                return 0, []
            part //= 2
        if rule == PlacementRule.NEAREST and part == largest:
            return 0, []
        choice, site = [], None
        while len(choice) < need:
            groups, sites = {}, {}
            for host in suit:
                groups.setdefault(host.group, []).append(host)
                sites.setdefault(host.site, []).append(host)
            expected = need - len(choice)
            if rule == PlacementRule.SPREAD or (site not in sites and any(len(hosts) >= expected for hosts in groups.values())):
                site = None
            elif site not in sites:
                enough = [one for one in sites if len(sites[one]) >= expected]
                least = min(enough, key=lambda one: (len(sites[one]), one), default=None)
                site = least if enough else min(sites, key=lambda one: (-len(sites[one]), one))
            groups = {group: hosts for group, hosts in groups.items() if site in (None, hosts[0].site)}
            best = min(groups, key=lambda group: self.order(rule, kind, free, need - len(choice), group, groups[group]))
            hosts = sorted(groups[best], key=lambda host: -free[host] if rule == PlacementRule.SPREAD else free[host])
            choice += hosts[: need - len(choice)]
            suit = [host for host in suit if host.group != best]
        return part, choice

    def find_block(self, job, entry, kind, free):
        """Devices a host and hosts of the first block."""
        size = self.problem.network.devices_per_host
        limit_s = math.inf if job in self.running else job.deadline_s
        for hosts in self.blocks:
            if len(hosts) * size == entry.degree and all(free[host] == size and host.kind == kind for host in hosts):
                step_s = entry.step_s[kind, size, self.spread(hosts)]
                again_s = self.restart_s(job, len(hosts))
                if step_s < math.inf and self.now_s + (step_s * (job.steps - job.done) + again_s) <= limit_s:
                    return size, hosts
        return size, []

    def order(self, rule, kind, free, expected, group, hosts):
        """The sort key of a group; the group with the least key comes next."""
        devices = sum(free[host] for host in self.hosts if (host.group, host.kind) == (group, kind))
        if rule == PlacementRule.SPREAD:
            if self.num_trunks:
                up = 2 * (len(self.hosts) + group)
                return max(self.load[up], self.load[up + 1]), -devices, group
            next_group = (group + 1) % self.problem.network.num_groups
            return max((self.load[link] for link in self.ways[group, next_group]), default=0.0), -devices, group
        holds = len(hosts) >= expected
        return not holds, len(hosts) if holds else -len(hosts), devices, group

    def spread(self, hosts):
        groups, sites = {host.class_group for host in hosts}, {host.site for host in hosts}
        return rounded_down(len(hosts) // len(groups)), len(sites) > 1

    def run(self, job, entry, part, hosts):
        for host in hosts:
            for device in [i for i, owner in enumerate(host.owners) if owner is None][:part]:
                host.owners[device] = job
        delay_s = self.restart_s(job, len(hosts))
        job.last_hosts = len(hosts)
        if job.status == JobState.WAITING:
            self.waiting.remove(job)
        job.start_s = self.now_s if job.start_s is None else job.start_s
        job.status, job.entry, job.hosts, job.part = JobState.RUNNING, entry, hosts, part
        job.since_s, job.finish_s = self.now_s + delay_s, None
        job.alone_s = 0.0
        for kind in sorted({host.kind for host in hosts}):
            of = kind, part, self.spread(hosts)
            if entry.step_s[of] > job.alone_s:
                job.alone_s, job.hidden_s = entry.step_s[of], entry.hidden_s[of]
        job.step_s = job.alone_s
        job.trunk_share = [0.0] * max(1, self.num_trunks)
        self.decided.add(job)
        self.running.append(job)
        self.share()

    def stop(self, job):
        job.done = float(math.floor(job.done + 1e-9))
        job.restarts += 1
        self.release(job)

    def release(self, job):
        self.running.remove(job)
        for host in job.hosts:
            host.owners = [None if owner is job else owner for owner in host.owners]
        job.hosts = []

    def restart_s(self, job, num_hosts):
        if job.start_s is None:
            return 0.0
        state_bytes = float(self.problem.menu.state_bytes[job.kind])
        if self.problem.stores_by_host:
            shares = 1.0 / job.last_hosts + 1.0 / max(1, num_hosts)
            return self.problem.restart_s + shares * state_bytes / self.problem.storage_bytes_per_s
        return self.problem.restart_s + 2.0 * state_bytes / self.problem.storage_bytes_per_s

    # Links.

    def share(self):
        if self.problem.sharing != SharingMode.NONE:
            sending = [job for job in self.running if job.since_s <= self.now_s]
            loads = [self.loads(job) for job in sending]
            alone_s, hidden_s = [job.alone_s for job in sending], [job.hidden_s for job in sending]
            constants = self.problem.sharing_constants.tolist()
            step_s = sharing_reference.step_times(alone_s, hidden_s, loads, constants, self.problem.sharing)
            self.load = [0.0] * len(self.capacity)
            for job, of_job, new_s in zip(sending, loads, step_s, strict=True):
                if new_s != job.step_s:
                    job.step_s, job.finish_s = new_s, None
                for link, (busy_s, _) in of_job.items():
                    self.load[link] += busy_s / new_s
                trunks = [(busy_s / new_s, link - 2 * len(self.hosts)) for link, (busy_s, _) in of_job.items()]
                for group in range(self.num_trunks):
                    job.trunk_share[group] = max((share for share, trunk in trunks if trunk // 2 == group), default=0.0)
        for job in self.running:
            if job.finish_s is None:
                job.finish_s = job.since_s + max(0.0, job.steps - job.done) * job.step_s

    def loads(self, job):
        """Seconds a step that a job keeps each link busy, and its streams there."""
        result = {}
        for slot, other, num_bytes, streams in job.entry.flows[job.part]:
            a, b = job.hosts[slot], job.hosts[other]
            for link in [2 * a.number, 2 * b.number + 1, *self.ways[a.group, b.group]]:
                busy_s, so_far = result.get(link, (0.0, 0.0))
                result[link] = busy_s + num_bytes / self.capacity[link], so_far + streams
        return result
