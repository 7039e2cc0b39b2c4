#!/usr/bin/env python3
"""Checks docs/from-triton.md against Triton's names and against our routes, metrics and configuration fields.

Each name of REFERENCE, each field of config.pbtxt that is imported or listed as dropped, each route under /v2 and each
nv_ metric must be in the first column of a row. A row that says "works" or "differs" must name a test, and each named
test must exist."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "from-triton.md"
VERDICTS = ("works", "differs", "not yet", "n/a")

# What Triton 2.73 has and what clients or configurations use, part by part.
REFERENCE = {
    "HTTP": """/v2 /v2/health/live /v2/health/ready /v2/models/stats /v2/logging /v2/models/{} /v2/models/{}/ready
        /v2/models/{}/infer /v2/models/{}/generate /v2/models/{}/generate_stream /v2/models/{}/config
        /v2/models/{}/stats /v2/models/{}/trace/setting /v2/trace/setting /v2/repository/index
        /v2/repository/models/{}/load /v2/repository/models/{}/unload /v2/systemsharedmemory/status
        /v2/cudasharedmemory/status""",
    "requests": """id sequence_id sequence_start sequence_end priority timeout binary_data_output classification
        shared_memory_region shared_memory_offset shared_memory_byte_size binary_data Content-Encoding
        Inference-Header-Content-Length""",
    "RPCs": """ServerLive ServerReady ModelReady ServerMetadata ModelMetadata ModelInfer ModelStreamInfer ModelConfig
        ModelStatistics RepositoryIndex RepositoryModelLoad RepositoryModelUnload SystemSharedMemoryStatus
        SystemSharedMemoryRegister SystemSharedMemoryUnregister CudaSharedMemoryStatus CudaSharedMemoryRegister
        CudaSharedMemoryUnregister TraceSetting LogSettings""",
    "options": """--model-repository --model-control-mode --repository-poll-secs --load-model --allow-client-shm
        --http-restricted-api --http-header-forward-pattern --http-max-input-size --exit-timeout-secs""",
    "metrics": "nv_inference_count nv_inference_request_success nv_inference_pending_request_count",
}


def plain(word):
    """Replaces each name in braces of a path, and removes the part that names a version."""
    if not word.startswith("/"):
        return word
    return re.sub(r"\{[^}]*\}", "{}", word.replace("/versions/{model_version}", ""))


def rows():
    """Yields (line number, words of the first column, verdict, tests) of each table row."""
    for number, line in enumerate(PAGE.read_text().split("\n"), 1):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if len(cells) < 3 or set(cells[0]) <= set("-: ") or cells[1] == "":
            continue
        yield (number, re.findall(r"`([^`]+)`", cells[0]), cells[1],
               re.findall(r"`([\w/.-]+::\w+)`", cells[-1]) if len(cells) >= 4 else [])


def test_exists(name):
    file, _, function = name.partition("::")
    path = ROOT / file if file.endswith(".c") else ROOT / "tests" / "e2e" / file
    start = "" if file.endswith(".c") else "def "
    return path.exists() and re.search(rf"^{start}{function}\(", path.read_text(), re.M) is not None


def ours():
    """Yields (where, name) of our routes, metrics and configuration fields."""
    for route in re.findall(r'"(/v2[^" ]*)"', (ROOT / "frontend" / "endpoints" / "routes.c").read_text()):
        # A repository has no second name. These paths only answer 404 and 405.
        if "{*" not in route and not route.startswith("/v2/repository/{"):
            yield "frontend/endpoints/routes.c", route
    for name in re.findall(r'"(nv_\w+)"', (ROOT / "metrics" / "page" / "infer_metrics.c").read_text()):
        yield "metrics/page/infer_metrics.c", name
    for field in re.findall(r'CN_IMPORT_KEY\("([\w.]+)"', (ROOT / "archiver" / "import" / "import_keys.def").read_text()):
        yield "archiver/import/import_keys.def", field.rpartition(".")[2]


def main():
    problems, known = [], set()
    for number, words, verdict, tests in rows():
        where = f"docs/from-triton.md:{number}"
        if verdict not in VERDICTS:
            problems.append(f'{where}: "{verdict}" is none of {", ".join(VERDICTS)}')
        if verdict in ("works", "differs") and not tests:
            problems.append(f"{where}: {verdict}, but no test is named")
        problems += [f"{where}: there is no test {test}" for test in tests if not test_exists(test)]
        known |= {plain(word) for word in words}
    problems += [f"{part}: {name} of Triton is not in the page"
                 for part, names in REFERENCE.items() for name in names.split() if name not in known]
    problems += [f"{where}: {name} is not in the page" for where, name in ours() if plain(name) not in known]
    for problem in problems:
        print(problem)
    print(f"{len(known)} entries, {len(problems)} problems")
    return 1 if problems or len(known) < 30 else 0


if __name__ == "__main__":
    sys.exit(main())
