"""The objects of packaging/kubernetes/: built by kustomize, checked against Kubernetes' schemas, and compared with what
the server and Envoy know. No cluster is needed; docs/kubernetes.md says what this leaves open."""

import contextlib
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys

import pytest
import yaml

from client import Client
from models import BIN, ROOT, counter
from ports import free_ports
from proxying import program
from server import address_of
from waiting import expect, limit

FOLDER = ROOT / "packaging" / "kubernetes"
BOTH = ["base", "trial"]


def built(name):
    """Returns the YAML that kubectl would apply."""
    if kustomize := shutil.which("kustomize"):
        command = [kustomize, "build"]
    elif kubectl := shutil.which("kubectl"):
        command = [kubectl, "kustomize"]
    else:
        pytest.skip("there is no kustomize and no kubectl in PATH")
    done = subprocess.run([*command, FOLDER / name], capture_output=True, text=True, timeout=limit(60), check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(name):
    found = {}
    for each in yaml.safe_load_all(built(name)):
        found[each["kind"], re.sub(r"-[a-z0-9]{10}$", "", each["metadata"]["name"])] = each
    return found


def containers(found):
    for (kind, name), each in found.items():
        if kind in ("Deployment", "StatefulSet"):
            pod = each["spec"]["template"]["spec"]
            for container in pod["containers"]:
                yield f"{kind} {name}", pod, container


@pytest.mark.parametrize("name", BOTH)
def test_every_object_fits_the_schema_of_its_kind(name, folder):
    """A field that does not exist would be refused by the cluster, or worse, ignored."""
    path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ.get("PATH", "")])
    validate = shutil.which("kubernetes-validate", path=path)
    if not validate:
        pytest.skip("there is no kubernetes-validate (pip install kubernetes-validate)")
    text = pathlib.Path(folder) / "all.yaml"
    text.write_text(built(name))
    done = subprocess.run([validate, "--strict", "-k", "1.32", text], capture_output=True, text=True,
                          timeout=limit(120), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    text.write_text(text.read_text().replace("readOnlyRootFilesystem", "readOnlyRootFilesytem", 1))
    done = subprocess.run([validate, "--strict", "-k", "1.32", text], capture_output=True, text=True,
                          timeout=limit(120), check=False)
    assert done.returncode != 0, "a misspelt field must be noticed"


@pytest.mark.parametrize("name", BOTH)
def test_pods_run_without_rights(name):
    for where, pod, container in containers(objects(name)):
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0, where
        assert pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault", where
        assert pod["automountServiceAccountToken"] is False, where
        rights = container["securityContext"]
        assert rights["readOnlyRootFilesystem"] and not rights["allowPrivilegeEscalation"], where
        assert rights["capabilities"] == {"drop": ["ALL"]}, where
        assert "memory" in container["resources"]["limits"], where
        assert ":" in container["image"] and "/" in container["image"], f"{where}: kustomize has not set the image"


@pytest.mark.parametrize("name", BOTH)
def test_names_refer_to_objects_that_there_are(name):
    """Selectors meet the labels of pods, ports have their names, and what is mounted is generated or documented."""
    found = objects(name)
    pods = {where: each["spec"]["template"] for where, each in found.items() if "template" in each.get("spec", {})}

    def selected(labels):
        return [pod for pod in pods.values() if labels.items() <= pod["metadata"]["labels"].items()]

    for (kind, which), each in found.items():
        spec = each.get("spec", {})
        if kind == "Service":
            [pod] = selected(spec["selector"])
            ports = {port["name"] for c in pod["spec"]["containers"] for port in c["ports"]}
            assert {port["targetPort"] for port in spec["ports"]} <= ports, which
        elif kind == "PodDisruptionBudget":
            assert len(selected(spec["selector"]["matchLabels"])) == 1, which
        elif kind == "NetworkPolicy":
            assert len(selected(spec["podSelector"]["matchLabels"])) == 1, which
        elif kind == "HorizontalPodAutoscaler":
            target = found[spec["scaleTargetRef"]["kind"], spec["scaleTargetRef"]["name"]]
            assert "replicas" not in target["spec"], "an apply would undo what the autoscaler has set"
    generated = {each["metadata"]["name"] for (kind, _), each in found.items() if kind in ("ConfigMap", "Secret")}
    users_own = {"continuo-store-tls"} if name == "trial" else {"continuo-store-tls", "continuo-store"}
    for where, pod, container in containers(found):
        used = {each["configMapRef"]["name"] for each in container.get("envFrom", [])}
        used |= {each["valueFrom"]["secretKeyRef"]["name"] for each in container.get("env", [])
                 if "secretKeyRef" in each.get("valueFrom", {})}
        for volume in pod.get("volumes", []):
            used |= {volume[kind][key] for kind, key in (("configMap", "name"), ("secret", "secretName"))
                     if kind in volume}
        assert used <= generated | users_own, (where, used - generated - users_own)


def test_the_server_knows_every_setting_and_has_time_to_drain(folder):
    """A misspelt variable would be refused or ignored. The pod must live longer than the drain needs."""
    found = objects("base")
    settings = found["ConfigMap", "continuo-settings"]["data"]
    env = {key: value for key, value in os.environ.items() if not key.startswith("CONTINUO_")}
    for each in found["Deployment", "continuo"]["spec"]["template"]["spec"]["containers"][0]["env"]:
        if each["name"].startswith("CONTINUO_ADVERTISE"):
            settings[each["name"]] = each["value"].replace("$(POD_IP)", "10.0.0.1")
    env.update(settings, CONTINUO_STATE_STORE="valkey+sentinel://:secret@sentinel/primary/demo")
    done = subprocess.run([BIN / "continuo", "--print-config"], capture_output=True, text=True, env=env, cwd=folder,
                          timeout=limit(30), check=False)
    assert done.returncode == 0, done.stderr
    for name in settings:
        key = name.removeprefix("CONTINUO_").lower().replace("_", "-")
        assert re.search(rf"^{key}: .*{name}", done.stdout, re.M), f"{name} is not in force:\n{done.stdout}"
    pod = found["Deployment", "continuo"]["spec"]["template"]["spec"]
    needed_s = (int(settings["CONTINUO_DRAIN_DELAY"]) + int(settings["CONTINUO_DRAIN_TIMEOUT"])) / 1000
    assert pod["terminationGracePeriodSeconds"] > needed_s + 5
    [container] = pod["containers"]
    probe = container["readinessProbe"]
    noticed_s = probe["periodSeconds"] * probe["failureThreshold"]
    assert int(settings["CONTINUO_DRAIN_DELAY"]) / 1000 > noticed_s
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for name, variable in (("http", "INFERENCE"), ("management", "MANAGEMENT"), ("metrics", "METRICS"),
                           ("grpc", "GRPC_INFERENCE")):
        assert settings[f"CONTINUO_{variable}_ADDRESS"] == f"http://0.0.0.0:{ports[name]}"


def test_the_probed_paths_and_the_scaling_metric_exist(server):
    s = server(counter())
    [container] = objects("base")["Deployment", "continuo"]["spec"]["template"]["spec"]["containers"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert s.client().get(container[probe]["httpGet"]["path"]).status == 200
    [metric] = objects("base")["HorizontalPodAutoscaler", "continuo"]["spec"]["metrics"]
    page = Client(address_of(s.metrics), s.transcript, "metrics").get("/metrics").text
    assert f"\n{metric['pods']['metric']['name']}{{" in page


def test_envoy_routes_as_in_the_tested_example():
    """Only addresses differ from examples/proxies/envoy.yaml, which test_shared_proxies.py runs."""
    ours = yaml.safe_load(objects("base")["ConfigMap", "continuo-envoy"]["data"]["envoy.yaml"])
    example = yaml.safe_load((ROOT / "examples" / "proxies" / "envoy.yaml").read_text())
    assert ours.pop("admin")["address"]["socket_address"]["address"] == "127.0.0.1"
    services = objects("base")["Service", "continuo-nodes"]["spec"]["ports"]
    for config in (ours, example):
        for listener in config["static_resources"]["listeners"]:
            listener["address"] = None
        for cluster in config["static_resources"]["clusters"]:
            for key in ("type", "dns_refresh_rate"):
                cluster.pop(key, None)
            ends = cluster["load_assignment"].pop("endpoints")[0]["lb_endpoints"]
            if config is ours:
                [end] = [each["endpoint"]["address"]["socket_address"] for each in ends]
                assert end["address"] == "continuo-nodes"
                assert end["port_value"] in [port["port"] for port in services]
    assert ours == example


def test_envoy_takes_the_configuration_and_its_pre_stop_hook_lets_clients_go(folder):
    """The hook of the pod, run as it is against a real Envoy, closes Envoy's ports after its delay."""
    envoy = program("envoy")
    found = objects("base")
    [container] = found["Deployment", "continuo-proxy"]["spec"]["template"]["spec"]["containers"]
    text = found["ConfigMap", "continuo-envoy"]["data"]["envoy.yaml"]
    http, grpc, admin = free_ports(3)
    for old, new in ((8080, http), (7070, grpc), (9901, admin)):
        text = text.replace(f"address: 0.0.0.0, port_value: {old}", f"address: 127.0.0.1, port_value: {new}")
        text = text.replace(f"address: 127.0.0.1, port_value: {old}", f"address: 127.0.0.1, port_value: {new}")
    text = text.replace("address: continuo-nodes", "address: localhost")
    path = pathlib.Path(folder) / "envoy.yaml"
    path.write_text(text)

    def listens():
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", http), timeout=limit(5)):
            return True
        return False

    with open(pathlib.Path(folder) / "envoy.log", "wb") as log:
        process = subprocess.Popen([envoy, "-c", path, "--use-dynamic-base-id", "--concurrency", "1",
                                    "--drain-time-s", "1", "--log-level", "warning"], stdout=log, stderr=log)
    try:
        expect(lambda: process.poll() is not None or listens(), "Envoy listens", 30)
        assert process.poll() is None, (pathlib.Path(folder) / "envoy.log").read_text()
        command = list(container["lifecycle"]["preStop"]["exec"]["command"])
        assert "9901" in command[-1] and "sleep 30" in command[-1]
        command[-1] = command[-1].replace("9901", str(admin)).replace("sleep 30", "cat <&3")
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit(30), check=False)
        assert done.returncode == 0 and "200 OK" in done.stdout, done
        expect(lambda: not listens(), "Envoy accepts no more connections", 30)
    finally:
        process.kill()
        process.wait()
