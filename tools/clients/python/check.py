"""The official Python client: objects, patches, watches, definitions. KUBECONFIG says where the server is."""

import threading

from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException

NAMESPACE = "python"
GROUP = "python.example.com"


def refused(code, reason, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except ApiException as error:
        assert (error.status, error.reason) == (code, reason), error
        return error
    raise AssertionError("not refused")


def main():
    config.load_kube_config()
    assert client.VersionApi().get_code().git_version.startswith("v1.36")
    core = client.CoreV1Api()
    core.create_namespace({"metadata": {"name": NAMESPACE}})
    objects(core)
    watches(core)
    definitions()
    core.delete_namespace(NAMESPACE)
    for event in watch.Watch().stream(
        core.list_namespace, field_selector=f"metadata.name={NAMESPACE}", timeout_seconds=60
    ):
        if event["type"] == "DELETED":
            break
    refused(404, "Not Found", core.read_namespace, NAMESPACE)


def objects(core):
    body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="a"), data={"key": "one"})
    created = core.create_namespaced_config_map(NAMESPACE, body)
    refused(409, "Conflict", core.create_namespaced_config_map, NAMESPACE, body)
    created.data["key"] = "two"
    core.replace_namespaced_config_map("a", NAMESPACE, created)
    refused(409, "Conflict", core.replace_namespaced_config_map, "a", NAMESPACE, created)
    # The client chooses the type of the patch by its form.
    merged = core.patch_namespaced_config_map("a", NAMESPACE, {"data": {"merged": "yes"}})
    assert merged.data == {"key": "two", "merged": "yes"}, merged.data
    operations = [{"op": "remove", "path": "/data/merged"}]
    assert core.patch_namespaced_config_map("a", NAMESPACE, operations).data == {"key": "two"}
    invalid = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="Not valid"))
    error = refused(422, "Unprocessable Entity", core.create_namespaced_config_map, NAMESPACE, invalid)
    assert "metadata.name" in error.body
    for number in range(5):
        name = client.V1ObjectMeta(name=f"page-{number}", labels={"page": "yes"})
        core.create_namespaced_config_map(NAMESPACE, client.V1ConfigMap(metadata=name))
    names, token = [], None
    while True:
        page = core.list_namespaced_config_map(
            NAMESPACE, label_selector="page=yes", limit=2, _continue=token
        )
        names += [item.metadata.name for item in page.items]
        token = page.metadata._continue
        if not token:
            break
    assert names == [f"page-{number}" for number in range(5)], names
    core.delete_collection_namespaced_config_map(NAMESPACE, label_selector="page=yes")
    core.delete_namespaced_config_map("a", NAMESPACE)
    refused(404, "Not Found", core.read_namespaced_config_map, "a", NAMESPACE)


def watches(core):
    seen, began = [], threading.Event()
    version = core.list_namespaced_secret(NAMESPACE).metadata.resource_version

    def follow():
        stream = watch.Watch().stream(
            core.list_namespaced_secret, NAMESPACE, resource_version=version, timeout_seconds=60
        )
        began.set()
        for event in stream:
            seen.append((event["type"], event["object"].metadata.name))
            if event["type"] == "DELETED":
                return

    thread = threading.Thread(target=follow)
    thread.start()
    began.wait()
    core.create_namespaced_secret(NAMESPACE, {"metadata": {"name": "s"}, "stringData": {"a": "b"}})
    core.patch_namespaced_secret("s", NAMESPACE, {"metadata": {"labels": {"x": "y"}}})
    core.delete_namespaced_secret("s", NAMESPACE)
    thread.join(90)
    assert seen == [("ADDED", "s"), ("MODIFIED", "s"), ("DELETED", "s")], seen


def definitions():
    names = {"plural": "lamps", "singular": "lamp", "kind": "Lamp", "listKind": "LampList"}
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {"color": {"type": "string", "default": "red"}}},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    version = {
        "name": "v1", "served": True, "storage": True,
        "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema},
    }
    crds = client.ApiextensionsV1Api()
    crds.create_custom_resource_definition({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"lamps.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    })
    for event in watch.Watch().stream(
        crds.list_custom_resource_definition, field_selector=f"metadata.name=lamps.{GROUP}", timeout_seconds=60
    ):
        conditions = event["object"].status.conditions if event["object"].status else None
        if any(c.type == "Established" and c.status == "True" for c in conditions or []):
            break
    custom = client.CustomObjectsApi()
    place = (GROUP, "v1", NAMESPACE, "lamps")
    lamp = {"apiVersion": f"{GROUP}/v1", "kind": "Lamp", "metadata": {"name": "l"}, "spec": {}}
    assert custom.create_namespaced_custom_object(*place, lamp)["spec"]["color"] == "red"
    patched = custom.patch_namespaced_custom_object_status(*place, "l", {"status": {"on": True}})
    assert patched["status"] == {"on": True}, patched
    assert len(custom.list_namespaced_custom_object(*place)["items"]) == 1
    custom.delete_namespaced_custom_object(*place, "l")
    crds.delete_custom_resource_definition(f"lamps.{GROUP}")


main()
print("python: good")
