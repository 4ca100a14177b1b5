"""Schemas of Kubernetes' custom resources as strict JSON Schema, and core objects under Kubernetes' own schemas.

A CRD's ``openAPIV3Schema`` drops unknown fields silently; here they are errors. This checks form only: it runs no webhooks,
and the CEL rules that matter to us are spelled out in the tests.
"""

from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml


def form(reference: Path, name: str, version: str) -> jsonschema.Draft202012Validator:
    """The strict schema of a CRD of the reference data in one of its versions."""
    crd = yaml.load((reference / "schedulers/crds" / f"{name}.yaml").read_text(), Loader=yaml.CSafeLoader)
    choice = next(each for each in crd["spec"]["versions"] if each["name"] == version and each["served"])
    schema = _closed(choice["schema"]["openAPIV3Schema"])
    schema["properties"] |= {
        "apiVersion": {"const": f"{crd['spec']['group']}/{version}"},
        "kind": {"const": crd["spec"]["names"]["kind"]},
    }
    schema["required"] = ["apiVersion", "kind", "metadata", "spec"]
    return jsonschema.Draft202012Validator(schema)


def documents(text: str) -> list[dict[str, Any]]:
    """The objects of a YAML file."""
    return list(yaml.load_all(text, Loader=yaml.CSafeLoader))


def check_pod(template: dict[str, Any]) -> None:
    """Hold a pod template against the schemas of Kubernetes itself, as a Pod and as a Job's template."""
    metadata = {"name": "name", **template.get("metadata", {})}
    check_core({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
    check_core({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "name"}, "spec": {"template": template}})


def check_core(content: dict[str, Any]) -> None:
    """Hold an object against the newest schema of Kubernetes itself; unknown fields are errors."""
    kubernetes_validate.validate(content, kubernetes_validate.latest_version(), strict=True)


def broken(content: dict[str, Any], path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    """A copy with another value at a path; ``...`` takes the key away."""
    copy = deepcopy(content)
    here: Any = copy
    for key in path[:-1]:
        here = here[key]
    if value is ...:
        del here[path[-1]]
    else:
        here[path[-1]] = value
    return copy


def pinned_to(pod: dict[str, Any]) -> list[str]:
    """The nodes by name that a pod may go to. Kubernetes takes one name in each term."""
    result = []
    for term in pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]:
        (field,) = term["matchFields"]
        assert (field["key"], field["operator"], len(field["values"])) == ("metadata.name", "In", 1)
        result += field["values"]
    return result


def _closed(schema: Any) -> Any:
    """A CRD's schema as JSON Schema in which unknown keys are errors."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    closed = {key: _closed(value) for key, value in schema.items() if key != "properties"}
    if "properties" in schema:
        closed["properties"] = {key: _closed(value) for key, value in schema["properties"].items()}
        if schema.get("type") == "object" and not schema.get("x-kubernetes-preserve-unknown-fields"):
            closed["additionalProperties"] = False
    elif schema == {"type": "object"}:  # metadata of the object itself
        return {"type": "object"}
    return closed
