"""Log and trace settings of the v2 protocol have an effect, and what cannot be done is refused."""

import re

import pytest
import requests
from tritonclient.utils import InferenceServerException

from models import counter
from test_v2_http import accumulator, client_of, identity, one, post


def setting(s, path, document=None):
    url = s.inference + path
    answer = requests.get(url, timeout=20) if document is None else requests.post(url, json=document, timeout=20)
    return answer.status_code, answer.json()


def traces(s):
    return [dict(re.findall(r'(\w+)=("[^"]*"|\S+)', line)) for line in list(s.lines) if "event=trace " in line]



def test_log_settings_are_shown_and_take_effect(server):
    """Lines that are switched off are not written, and come back when they are switched on."""
    s = server(identity())
    client = client_of(s)
    settings = {"log_file": "", "log_info": True, "log_warning": True, "log_error": True, "log_verbose_level": 0,
                "log_format": "ISO8601"}
    assert client.get_log_settings() == settings
    assert client.update_log_settings({"log_info": False, "log_verbose_level": 0}) == {**settings, "log_info": False}
    assert s.register(counter("quiet")).status == 200
    assert client.update_log_settings({"log_info": True, "log_format": "default"})["log_format"] == "default"
    assert s.register(counter("loud")).status == 200
    s.expect_log("event=model_registered model=loud")
    assert not any("model=quiet" in line and "event=model_registered" in line for line in s.lines)
    assert client.update_log_settings({"log_verbose_level": 3})["log_verbose_level"] == 3


@pytest.mark.parametrize("document, status, words", [
    ({"log_file": "/tmp/x"}, 501, "log file location can not be updated"),
    ({"log_info": 1}, 500, "Unable to parse 'log_info': attempt to access JSON non-boolean as boolean"),
    ({"log_verbose_level": -1}, 500, "non-unsigned-integer as unsigned-integer"),
    ({"log_format": "XML"}, 400, "log_format is 'XML'; it must be 'default' or 'ISO8601'"),
    ({"log_inof": True}, 400, "unknown log setting 'log_inof'"),
    ([], 500, "Unable to parse 'settings'"),
])
def test_bad_log_settings_change_nothing(server, document, status, words):
    s = server(identity())
    before = setting(s, "/v2/logging")
    got, body = setting(s, "/v2/logging", document)
    assert got == status and words in body["error"]
    assert setting(s, "/v2/logging") == before


def test_traces_by_rate_and_count(server):
    """One of `trace_rate` requests has a line, up to `trace_count` lines. A model's own settings take precedence."""
    s = server(identity(), accumulator())
    client = client_of(s)
    off = {"trace_level": ["OFF"], "trace_rate": "1000", "trace_count": "-1", "log_frequency": "0", "trace_file": "",
           "trace_mode": "triton"}
    assert client.get_trace_settings() == client.get_trace_settings("identity") == off
    document = one("FP32", "FP32", [1], [1])

    def run(n):
        for i in range(n):
            assert post(s, "identity", {**document, "id": f"r{i}"}).status_code == 200

    run(3)
    assert client.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"], "trace_rate": "2"}) == {
        **off, "trace_level": ["TIMESTAMPS"], "trace_rate": "2"}
    run(6)
    s.expect_log("event=trace", "r4")
    assert [trace["request_id"].strip('"') for trace in traces(s)] == ["r0", "r2", "r4"]
    trace = traces(s)[0]
    parts = sum(int(trace[f"{part}_us"]) for part in ("queue", "compute_input", "compute_infer", "compute_output"))
    assert 0 < parts <= int(trace["answered_us"]) - int(trace["arrived_us"])
    assert (trace["model"], trace["version"]) == ("identity", "1.0")
    assert client.update_trace_settings("identity", {"trace_rate": "1", "trace_count": 2})["trace_count"] == "2"
    run(5)
    s.expect_log("event=trace", "r1")
    assert len(traces(s)) == 5
    assert client.get_trace_settings("accumulator")["trace_rate"] == "2"
    cleared = client.update_trace_settings("identity", {"trace_rate": None, "trace_count": None})
    assert (cleared["trace_rate"], cleared["trace_count"]) == ("2", "-1")
    client.update_trace_settings(settings={"trace_level": None})
    run(3)
    assert len(traces(s)) == 5


@pytest.mark.parametrize("document, status, words", [
    ({"trace_file": "x"}, 501, "trace file location can not be updated"),
    ({"trace_level": ["TENSORS"]}, 400, "it must be OFF or TIMESTAMPS"),
    ({"trace_level": ["OFF"] * 17}, 400, "17 values"),
    ({"trace_rate": "0"}, 400, "trace_rate is '0'; it must be a number from 1 upwards"),
    ({"trace_rate": "1x"}, 400, "trace_rate is '1x'"),
    ({"trace_rate": ["1", "2"]}, 400, "trace_rate takes one value, not 2"),
    ({"trace_count": "-2"}, 400, "or -1 for no limit"),
    ({"trace_count": True}, 500, "non-string as string"),
    ({"log_frequency": "5"}, 400, "no trace files are written"),
    ({"trace_mode": "opentelemetry"}, 400, "it must be triton"),
    ({"trace_speed": "1"}, 400, "unknown trace setting 'trace_speed'"),
    ({"trace_rate": "7", "trace_count": "x"}, 400, "trace_count is 'x'"),
])
def test_bad_trace_settings_change_nothing(server, document, status, words):
    s = server(identity())
    before = setting(s, "/v2/trace/setting")
    got, body = setting(s, "/v2/trace/setting", document)
    assert got == status and words in body["error"]
    assert setting(s, "/v2/trace/setting") == before


def test_settings_of_unknown_models(server):
    with pytest.raises(InferenceServerException, match="Request for unknown model: 'nobody' is not found"):
        client_of(server(identity())).get_trace_settings("nobody")
