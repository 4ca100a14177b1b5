"""Answers to Slurm's hooks over HTTP: a job's whole way, and no plan on a state that is too old."""

from meshwright.live.deciding import Planners

from .web_samples import Told, client

ASKED = {"comment": "mw:auto job=zoo:squeezenet steps=2000", "nodes": 1, "gpus_per_node": 4, "user": "ada", "name": "n"}


def test_a_job_of_slurm_goes_its_way_over_http(tmp_path, cluster):
    made = Planners(cluster, "max@best-fit", scratch=tmp_path / "scratch")
    with client(tmp_path / "s.db", made, [Told()]) as http:

        def post(end, **body):
            answer = http.post(f"/v1/slurm/{end}", json=body)
            assert answer.status_code == 200, answer.text
            return answer.json()

        def status(name):
            told = http.get(f"/v1/decisions/{name}").json()
            return told["status"], told["detail"]

        prepared, looked = [], []
        http.service.prepare, http.service.ask_now = prepared.append, lambda: looked.append(1)
        assert post("submit", **ASKED) == {"why": "its kind of job is made ready now, later ones will be planned"}
        assert [(one.job, one.devices, one.steps) for one in prepared] == [("zoo:squeezenet", 4, 2000)]
        made.make_ready(prepared[0])
        answer = post("submit", **ASKED)
        name = answer["comment"].removeprefix("mw:")
        reported = http.get(f"/v1/decisions/{name}").json()["decision"]
        assert answer["why"] == reported["why"]
        assert [place["host"] for place in reported["places"]] == [answer["req_nodes"]]
        assert status(name) == ("reserved", "")
        assert looked == []
        post("prolog", job_id="7", comment=answer["comment"])
        assert status(name) == ("confirmed", "7")
        assert looked == [1]
        assert post("prolog", job_id="9", comment="mw:other") == {"why": "it was not planned here"}
        post("epilog", job_id="7", exit_code="0:0")
        assert status(name) == ("ended", "ended with exit code 0:0")
        http.service.is_stale = lambda: True
        prepared, looked = [], []
        http.service.prepare, http.service.ask_now = prepared.append, lambda: looked.append(1)
        assert post("submit", **ASKED) == {"why": "the state of the cluster is too old"}
