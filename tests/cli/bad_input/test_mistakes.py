"""Natural mistakes on the command line: one line names the place, the value and the remedy."""

import json

import pytest

PLAN = ("plan", "--job", "graph.txt", "--cluster", "cluster.yaml")
ON = ("--cluster", "cluster.yaml")
DGX = ("--cluster", "preset:dgx-a100-8x8")
ESTIMATE = ("estimate", "--job", "zoo:gpt2-small", *DGX, "--layout")
SEARCH = ("plan", "--job", "zoo:llama-7b", *DGX, "--search")
EXPORT = ("export", "plan.json", "--out", "out", "--format")
GPT2 = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 100, "n_positions": 128}

MISTAKES = [
    # The job.
    (("plan", "--job", "resnet50", *ON), "(got 'resnet50'); did you mean 'zoo:resnet50'?"),
    (("plan", "--job", "zoo:ResNet-50", *ON), "(got 'ResNet-50'); did you mean 'resnet50'?"),
    (
        ("plan", "--job", "zoo:llama-13b", *ON),
        "(got 'llama-13b'); any other model is named by its Hugging Face config.json; valid: alexnet",
    ),
    (("plan", "--job", "llava.json", *ON), "llava.json: model_type: a decoder of text with other parts around it"),
    (("plan", "--job", "empty", *ON), "empty: the folder holds no graph.txt and no config.json"),
    (("plan", "--job", "plan.json", *ON), "plan.json: is a placement plan, no job; `meshwright export` takes plans"),
    (("plan", "--job", "workload.yaml", *ON), "workload.yaml: a job is a graph.txt, a saved graph (JSON), a config.json"),
    (("plan", "--job", "zoo:llama-7b", *ON), "job: fits no block of pair: `meshwright plan --search` also tries"),
    (("plan", "--job", "bert-large-uncased", *ON), "a model that is not built in is named by the folder that holds its config"),
    (("plan", "--job", "", *ON), "--job: must not be empty"),
    (("plan", "--job", "gpt2", *ON), "(got 'gpt2'); did you mean 'zoo:gpt2-small' or 'zoo:gpt2-xl'?"),
    (("plan", "--job", "https://huggingface.co/org/model-7b/tree/main", *ON), "as `hf download org/model-7b config.json --local"),
    (("plan", "--job", "hf:org/model-7b", *ON), "a model is not fetched; name a folder that holds its config.json"),
    (("plan", "--job", "https://example.org/graph.txt", *ON), "is not fetched from the network; save it"),
    # The cluster.
    (("plan", "--job", "graph.txt", "--cluster", "dgx-a100-8x8"), "cluster: neither a file nor a preset (got 'dgx-a100-8x8'); "),
    (("plan", "--job", "graph.txt", "--cluster", "preset:dgx_a100_8x8"), "(got 'dgx_a100_8x8'); did you mean 'dgx-a100-8x8'?"),
    (("plan", "--job", "graph.txt", "--cluster", "upper.yaml"), "upper.yaml: device: unknown device type (got 'H100'); did you"),
    (("plan", "--job", "graph.txt", "--cluster", "links.csv"), "links.csv: cluster: a cluster is YAML, which names a CSV"),
    # Numbers.
    ((*PLAN, "--deadline-s", "1h"), "--deadline-s: must be a number of seconds without a unit (got '1h'); did you mean 3600?"),
    ((*PLAN, "--set", "overlap_slowdown=12%"), "--set: overlap_slowdown: must be a number without a unit (got '12%')"),
    (("train", "train.yaml", "--set", "learning_rate=1"), "unknown key; did you mean 'ppo.learning_rate'"),
    (
        ("train", "train.yaml", "--total-steps", "9"),
        "--total-steps: no such option; a key of the YAML is set by --set total_steps=",
    ),
    (
        ("evaluate", "--benchmark", "benchmark.yaml", "--set", "policies=max"),
        "--set: policies: must be a list, as [max] (got 'max')",
    ),
    ((*PLAN, "--steps", "1e4"), "--steps: must be a whole number (got '1e4'); did you mean 10000?"),
    (("train", "train.yaml", "--set", "ppo.learning_rate=fast"), "--set: ppo.learning_rate: must be a number (got 'fast')"),
    # Layouts.
    ((*ESTIMATE, "tp=4 pp=2"), "layout: a comma is wanted between two keys (got 'tp=4 pp=2')"),
    ((*ESTIMATE, "tp4,pp2"), "layout: must read key=value (got 'tp4'); did you mean 'tp=4'?"),
    ((*ESTIMATE, "tp=4,mbs=1"), "layout.mbs: unknown key; here it is 'micro_batch'"),
    ((*ESTIMATE, "TP=4,micro_batch=1"), "layout.TP: unknown key (got 'TP'); did you mean 'tp'?"),
    ((*ESTIMATE, "tp=4,micro_batch=1,sequence_parallel=yes"), "layout.sequence_parallel: must be true or false (got 'yes')"),
    ((*ESTIMATE, "tp=4, dp=8, micro_batch=1, global_batch=30"), "layout: global_batch=30 is not a multiple of micro_batch x dp"),
    ((*ESTIMATE, "tp=4,dp=32,micro_batch=1,global_batch=64"), "layout: has 128 ranks, dgx-a100-8x8 only 64 devices"),
    # The search.
    (
        (*SEARCH, "--keep", "tp=3"),
        "--keep.tp: does not divide the 32 heads of llama-7b, so that no layout is legal on 64 devices",
    ),
    ((*SEARCH, "--keep", "tp=4,8"), "keep: must read key=value or key=value|value (got '8'); did you mean tp=4|8?"),
    ((*SEARCH, "--keep", "pp=64"), "--keep.pp: 64 model chunks are more than the 32 layers of llama-7b"),
    ((*SEARCH, "--devices", "63"), "--devices: whole hosts of 8 are wanted; next are 56 and 64 (got '63')"),
    ((*PLAN, "--batch", "64"), "only; a job graph has a batch and lengths of its own, --search takes both"),
    ((*PLAN[:3], "--state", "http://a", "--keep", "tp=2"), "--keep: does not go with a service as --state: the service says it"),
    ((*SEARCH, "--keep", "micro_batch=3"), "--keep.micro_batch: does not divide the batch of 4"),
    ((*SEARCH, "--devices", "all"), "or a range A-B; without the option all are used (got 'all')"),
    ((*PLAN, "--policy", "menu:max", "--keep", "tp=2"), "--keep: does not go with a policy of a fleet, whose benchmark says it"),
    # Policies, configs and formats.
    (("train", ""), "CONFIG: must not be empty (is a variable of the shell not set?)"),
    ((*PLAN, "--policy", "fixed8"), "(got 'fixed8'); did you mean 'fixed-8'?"),
    (
        (*PLAN, "--policy", "sjf:fixed-8"),
        "is a rule of fleets, as preset:llm-256, which decide on a queue of jobs (got 'sjf:fixed-8')",
    ),
    (("evaluate", "--benchmark", "benchmark.yaml", "max,min"), "names one policy; separate several by blanks (got 'max,min')"),
    (("help",), "no such command; did you mean '--help', or 'COMMAND --help'? (got 'help')"),
    ((*EXPORT, "k8s"), "--format: unknown format (got 'k8s'); did you mean 'kubernetes'?"),
    # One kind of file in place of another.
    (("evaluate", "--benchmark", "train.yaml"), "train.yaml: is a training config, which `meshwright train` takes"),
    (("evaluate", "--benchmark", "cluster.yaml"), "cluster.yaml: is a cluster, which `--cluster` takes and a benchmark names"),
    (("plan", "--job", "graph.txt", "--cluster", "workload.yaml"), "workload.yaml: is a workload, which a benchmark names"),
    (("evaluate", "benchmark.yaml"), "benchmark.yaml: is YAML; a policy is a run folder, its policy.pt or policy.json, and a"),
    (("evaluate", "--summarise", "plan.json"), "POLICY: is a file, a folder is wanted (got 'plan.json')"),
    (("plan", "--job", "graph.txt", "--cluster", "cluster"), "a preset (got 'cluster'); did you mean 'cluster.yaml'?"),
    (("export", "graph.txt", "--out", "out", "--format", "slurm"), "graph.txt: a plan is JSON, as `meshwright plan --json FILE`"),
]


@pytest.fixture
def more(work):
    """Write the files that the mistakes confuse next to the good inputs."""
    (work / "empty").mkdir()
    (work / "model").mkdir()
    (work / "model" / "config.json").write_text(json.dumps(GPT2))
    (work / "llava.json").write_text(json.dumps({"model_type": "llava"}))
    (work / "plan.json").write_text(json.dumps({"schema_version": 2}))
    (work / "links.csv").write_text("source,target\na,b\n")
    (work / "upper.yaml").write_text((work / "cluster.yaml").read_text().replace("a100", "H100"))


def test_natural_mistakes_are_each_refused_with_the_way_out(more, refused):
    assert len(MISTAKES) >= 50
    figures = {arguments: refused(*arguments) for arguments, _ in MISTAKES}
    assert {arguments: figures[arguments] for arguments, expected in MISTAKES if expected not in figures[arguments]} == {}


def test_a_folder_with_a_model_configuration_is_a_job_of_plans_and_of_workloads(more, work, meshwright, refused):
    from meshwright.jobs.load import load_graph, load_shape
    from meshwright.jobs.workload import load_workload

    inside = load_graph("model/config.json")
    assert load_graph("model").to_data() == inside.to_data()
    assert load_shape("model") == load_shape("model/config.json")
    (work / "own.yaml").write_text((work / "workload.yaml").read_text().replace("zoo:resnet18", "model"))
    assert load_workload("own.yaml").graphs[1].name == inside.name == "model"
    (work / "model" / "graph.txt").write_text((work / "graph.txt").read_text())
    assert refused("plan", "--job", "model", *ON) == "model: the folder holds graph.txt and config.json; name one of the two"
