#!/usr/bin/env python3
"""Checks docs/from-torchserve.md against TorchServe and against the code.

Each name of REFERENCE must be in the first column of a row, and so must each flag, key, model key, archiver option,
route, parameter and metric of our tables that is not in OURS. A row whose second column is "works" or "differs" must
name a test, and each named test must exist. A key that sets one of our options must not be "n/a", and a key without
effect must be."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "from-torchserve.md"


# What TorchServe 0.12.0 has, part by part. A word in braces stands for any name.
REFERENCE = {
    "command line": """--start --stop --foreground --version -v --ts-config --model-store --workflow-store --models
        --log-config --cpp-log-config --no-config-snapshots --ncs --plugins-path --ppath --disable-token-auth --dt
        --enable-model-api""",
    "environment": """TS_CONFIG_FILE LOG_LOCATION METRICS_LOCATION TEMP JAVA_HOME TS_MODEL_SERVER_HOME
        TS_OPEN_INFERENCE_PROTOCOL TS_<KEY> SM_TELEMETRY_LOG AWS_* $$NAME$$""",
    "config.properties": """inference_address management_address metrics_address grpc_inference_address
        grpc_management_address grpc_inference_port grpc_management_port grpc_inference_max_connection_age_ms
        grpc_inference_max_connection_age_grace_ms grpc_management_max_connection_age_ms
        grpc_management_max_connection_age_grace_ms enable_grpc_ssl model_store workflow_store load_models models
        model_snapshot default_workers_per_model default_response_timeout default_startup_timeout
        unregister_model_timeout job_queue_size max_request_size max_response_size number_of_gpu
        number_of_netty_threads netty_client_threads enable_metrics_api metrics_config metrics_mode
        model_metrics_auto_detect disable_system_metrics system_metrics_cmd metric_time_interval
        enable_envvars_config allowed_urls use_env_allowed_urls install_py_dep_per_model default_service_handler
        service_envelope decode_input_request limit_max_image_pixels cors_allowed_origin cors_allowed_methods
        cors_allowed_headers keystore keystore_pass keystore_type private_key_file certificate_file
        blacklist_env_vars ts_header_key_sequence_id ts_header_key_sequence_start ts_header_key_sequence_end
        ts_open_inference_protocol disable_token_authorization token_expiration_min enable_model_api
        initial_worker_port initial_distribution_port async_logging debug prefer_direct_buffer use_native_io
        io_ratio ipex_enable ipex_gpu_enable cpu_launcher_enable cpu_launcher_args cpp_log_config vmargs
        plugins_path""",
    "inference endpoints": """/ /api-description /ping /predictions/{} /predictions/{}/{} /predictions/{}/{}/{}
        /explanations/{} /explanations/{}/{} /explanations/{}/{}/{} /invocations /models/{}/invoke /{}/predict
        /{}/{}/predict /v1/models/{}:predict /v1/models/{}:explain /v2/models/{}/infer /v2/models/{}/explain
        /wfpredict/{} /v2 /v2/health/live /v2/health/ready /v2/.../versions""",
    "requests": """multipart/form-data application/x-www-form-urlencoded x-request-id Pragma Cache-Control Expires
        explain url_path""",
    "management endpoints": """/models /models/{} /models/{}/{} /models/{}/all /models/{}/{}/set-default
        /v1/models/{} /workflows /workflows/{} /token""",
    "management parameters": """url model_name handler runtime batch_size max_batch_delay initial_workers
        response_timeout startup_timeout synchronous s3_sse_kms limit next_page_token customized min_worker
        max_worker model_version number_gpu timeout""",
    "errors": """ModelNotFoundException ModelVersionNotFoundException ResourceNotFoundException
        PredictionException DownloadArchiveException""",
    "metrics": """Requests2XX Requests4XX Requests5XX ts_inference_requests_total
        ts_inference_latency_microseconds ts_queue_latency_microseconds QueueTime WorkerThreadTime WorkerLoadTime
        CPUUtilization MemoryUtilization DiskUtilization MemoryUsed MemoryAvailable DiskUsage DiskAvailable
        GPUMemoryUtilization GPUMemoryUsed GPUUtilization HandlerTime PredictionTime /metrics name[] log prometheus
        legacy ts_metrics model_metrics dimensions""",
    "manifest": """createdOn runtime archiverVersion modelName handler modelVersion serializedFile modelFile
        requirementsFile configFile extensions description envelope""",
    "archiver": """--model-name --handler -v --version --serialized-file --model-file --extra-files --runtime
        --export-path --archive-format -f --force -r --requirements-file -c --config-file""",
    "model YAML": """minWorkers maxWorkers batchSize maxBatchDelay responseTimeout startupTimeout deviceType
        deviceIds parallelType parallelLevel torchrun maxRetryTimeoutInSec clientTimeoutInMills jobQueueSize
        useJobTicket continuousBatching sequenceBatching asyncCommunication useVenv sequenceMaxIdleMSec
        sequenceTimeoutMSec maxSequenceJobQueueSize maxNumSequence""",
    "tokens": "key_file.json authorization",
    "gRPC": """Ping Predictions StreamPredictions StreamPredictions2 DescribeModel ListModels RegisterModel ScaleWorker
        SetDefault UnregisterModel GRPCInferenceService ServerLive ServerReady ServerMetadata ModelReady ModelMetadata
        ModelInfer""",
}

# Routes and parameters that TorchServe does not have: other pages describe them.
OUR_ROUTES = re.compile(r"^/docs$|^/v2(/|$)|/sequences|^/environments|^/stores|^/shared-states|^/nodes|^/keys|^/cluster|^/slowlog|^/v1/streams|^/page|^/try|^/events|/workers/")
OUR_PARAMS = {"Idempotency-Key", "ts-request-sequence-step", "count", "prefix", "state", "min_idle_ms", "export", "replace", "any_model", "fork_to",
              "swap_policy", "swap_deadline", "model", "sort", "show_state"}


def plain(word):
    """Turns GET /models/{m} into /models/{}, and also METHOD /path?query=."""
    word = re.sub(r"^(?:[A-Z]+) (?=/)", "", word)
    if word.startswith("/"):
        word = re.sub(r"\{[^}]*\}", "{}", word.split("?")[0])
    return word


def rows():
    """Yields (line number, words of the first column, verdict, tests) of each table row."""
    found = []
    for number, line in enumerate(PAGE.read_text().split("\n"), 1):
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))] if line.startswith("|") else []
        if len(cells) < 3 or set(cells[0]) <= set("-: ") or cells[1] == "":
            continue
        words = re.findall(r"`([^`]+)`", cells[0])
        tests = re.findall(r"`([\w/.-]+::\w+)`", cells[-1]) if len(cells) >= 4 else []
        found.append((number, words, cells[1], tests))
    return found


def strings(path, macro):
    """Yields each row of a .def file, which may take several lines, as its string arguments."""
    for row in re.findall(rf"^{macro}\(.*?\)$", path.read_text(), re.M | re.S):
        yield row, re.findall(r'"((?:[^"\\]|\\.)*)"', row)


def test_exists(name):
    path, _, function = name.partition("::")
    file = ROOT / "tests" / "e2e" / path if path.endswith(".py") and "/" not in path else ROOT / path
    if not file.exists():
        return False
    pattern = rf"^def {function}\(" if path.endswith(".py") else rf"^{function}\("
    return re.search(pattern, file.read_text(), re.M) is not None


def missing_of_code(verdicts):
    """Yields routes, parameters, metrics and model keys of our tables that have no row."""
    routes = set(re.findall(r'"(/[^" ]*)"', (ROOT / "frontend" / "endpoints" / "routes.c").read_text()))
    for route in sorted(routes):
        if not OUR_ROUTES.search(route) and plain(route) not in verdicts:
            yield f"frontend/endpoints/routes.c: {route} is not in the page"
    for _, args in strings(ROOT / "frontend" / "endpoints" / "api_params.def", "CN_API_PARAM"):
        if args[2] not in OUR_PARAMS | verdicts.keys():
            yield f"frontend/endpoints/api_params.def: {args[2]} is not in the page"
    names = re.search(r"names\[[A-Z_]*\] = \{(.*?)\};", (ROOT / "torchserve" / "metrics" / "metric_lines.c").read_text(), re.S).group(1)
    for name in re.findall(r'"(\w+)"', names):
        if name not in verdicts:
            yield f"torchserve/metrics/metric_lines.c: {name} is not in the page"
    for _, args in strings(ROOT / "config" / "model" / "torchserve_keys.def", "CN_TORCHSERVE_KEY"):
        if verdicts.get(args[0]) not in ("n/a", "differs"):  # some have an effect for some kinds of models
            yield f"config/model/torchserve_keys.def: {args[0]} has no effect, the page says {verdicts.get(args[0])}"


def main():
    problems, verdicts = [], {}
    for number, words, verdict, tests in rows():
        where = f"docs/from-torchserve.md:{number}"
        if verdict not in ("works", "differs", "n/a"):
            problems.append(f'{where}: "{verdict}" is none of works, differs, n/a')
        if verdict in ("works", "differs") and not tests:
            problems.append(f"{where}: {verdict}, but no test is named")
        problems += [f"{where}: there is no test {test}" for test in tests if not test_exists(test)]
        for word in words:
            verdicts.setdefault(plain(word), verdict)
            if "?" in word:  # /token?type=, ?customized=true
                verdicts.setdefault(re.split(r"[?=]", word)[1], verdict)
    problems += [f"{part}: {name} of TorchServe is not in the page"
                 for part, names in REFERENCE.items() for name in names.split() if name not in verdicts]
    problems += missing_of_code(verdicts)
    for _, args in strings(ROOT / "torchserve" / "settings" / "torchserve_flags.def", "CN_TORCHSERVE_FLAG"):
        problems += [f"torchserve/settings/torchserve_flags.def: {flag} is not in the page"
                     for flag in args[:2] if flag and flag not in verdicts]
    for _, args in strings(ROOT / "archiver" / "program" / "archiver_options.def", "CN_ARCHIVER_OPTION"):
        if f"--{args[0]}" not in verdicts:
            problems.append(f"archiver/program/archiver_options.def: --{args[0]} is not in the page")
    for line, args in strings(ROOT / "torchserve" / "settings" / "properties.def", "CN_PROPERTY"):
        key, verdict = args[0], verdicts.get(args[0])
        is_note = re.match(r'CN_PROPERTY\("[^"]*", NOTE,', line) is not None
        if verdict is None:
            problems.append(f"torchserve/settings/properties.def: {key} is not in the page")
        elif is_note != (verdict == "n/a"):
            problems.append(f"torchserve/settings/properties.def: {key} is {'a NOTE' if is_note else 'read'}, "
                            f"the page says {verdict}")
    for problem in problems:
        print(problem)
    print(f"{len(verdicts)} entries, {len(problems)} problems")
    return 1 if problems or len(verdicts) < 30 else 0


if __name__ == "__main__":
    sys.exit(main())
