"""Checks rendered manifests: `validate.py FILE [KUBERNETES_VERSION…]`. See validate.sh."""

import sys

import kubernetes_validate
import yaml

# JobSet's own fields (api/jobset/v1alpha2/jobset_types.go): a set of keys, or the keys with what they hold.
JOBSET = {
    "network": {"enableDNSHostnames", "subdomain", "publishNotReadyAddresses"},
    "successPolicy": {"operator", "targetReplicatedJobs"},
    "failurePolicy": {
        "maxRestarts": None,
        "restartStrategy": None,
        "rules": {"name", "action", "onJobFailureReasons", "onJobFailureMessagePatterns", "targetReplicatedJobs"},
    },
    "replicatedJobs": {"name", "replicas", "template", "groupName", "dependsOn"},
    "suspend": None,
    "ttlSecondsAfterFinished": None,
}
# What these manifests use that is not in them.
MADE_ELSEWHERE = {("PersistentVolumeClaim", "runs-ata-coordinator-0")}


def check_fields(value, known, path):
    """Fails on a key that is not known."""
    if isinstance(value, list):
        for item in value:
            check_fields(item, known, path)
    elif known is not None:
        for key, inner in value.items():
            assert key in known, f"{path}.{key}: no such field"
            check_fields(inner, known[key] if isinstance(known, dict) else None, f"{path}.{key}")


def jobs_of(jobset):
    """The Jobs that a JobSet makes, after a check of its own fields."""
    spec = jobset["spec"]
    check_fields(spec, JOBSET, "JobSet.spec")
    names = [job["name"] for job in spec["replicatedJobs"]]
    assert set(spec["successPolicy"]["targetReplicatedJobs"]) <= set(names), "successPolicy: no such job"
    for job in spec["replicatedJobs"]:
        metadata = {"name": f"{jobset['metadata']['name']}-{job['name']}-0", "namespace": jobset["metadata"]["namespace"]}
        yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job["template"]["spec"]}


def pod_of(manifest):
    """The pod's specification in a manifest, if it has one."""
    return manifest["spec"] if manifest["kind"] == "Pod" else manifest.get("spec", {}).get("template", {}).get("spec")


def references(pod):
    """What the volumes of a pod refer to."""
    for volume in pod.get("volumes", []):
        if "secret" in volume:
            yield "Secret", volume["secret"]["secretName"]
        if "configMap" in volume:
            yield "ConfigMap", volume["configMap"]["name"]
        if "persistentVolumeClaim" in volume:
            yield "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]


def check_pod(pod, claims):
    """The pod security standard "restricted", a read-only root, and mounts of volumes that exist."""
    whole = pod["securityContext"]
    assert whole["runAsNonRoot"] and whole["runAsUser"] == 10001
    assert whole["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    volumes = {volume["name"] for volume in pod.get("volumes", [])} | claims
    for container in pod["containers"] + pod.get("initContainers", []):
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False and context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert "memory" in container["resources"]["limits"] and "cpu" in container["resources"]["requests"]
        for mount in container.get("volumeMounts", []):
            assert mount["name"] in volumes, f"{container['name']}: no volume {mount['name']}"


def main(file, *versions):
    with open(file, encoding="utf-8") as stream:
        manifests = [manifest for manifest in yaml.safe_load_all(stream) if manifest]
    made = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests} | MADE_ELSEWHERE
    for manifest in manifests:
        assert manifest["metadata"]["namespace"] == "ata", manifest["metadata"]
        standard = list(jobs_of(manifest)) if manifest["kind"] == "JobSet" else [manifest]
        for one in standard:
            for version in versions or [kubernetes_validate.latest_version()]:
                try:
                    kubernetes_validate.validate(one, version, strict=True)
                except kubernetes_validate.ValidationError as error:
                    sys.exit(f"  {one['kind']} {one['metadata']['name']}, Kubernetes {version}: {error.message}")
            pod = pod_of(one)
            if pod:
                templates = one["spec"].get("volumeClaimTemplates", [])
                check_pod(pod, {claim["metadata"]["name"] for claim in templates})
                missing = set(references(pod)) - made
                assert not missing, f"{one['metadata']['name']} refers to {missing}"
        print(f"  {manifest['kind']} {manifest['metadata']['name']}: valid")


if __name__ == "__main__":
    main(*sys.argv[1:])
