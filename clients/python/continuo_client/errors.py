"""The errors that a call can raise: one class for each error word of the server.

All of them are a ContinuoError, which has `status`, `type`, `word`, `message` and `help`."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Type


class ContinuoError(Exception):
    """Something failed. Subclasses say what.

    word: the server's word for the error, such as `queue_full`; status: the HTTP status, 0 if no
    answer came; type: the name that the server's JSON has for it; message: what the server said;
    help: what to do about it; retry_after: seconds that the server asks to wait, or None;
    expected_step: the number of the next step that the server expects, or None."""

    word = ""
    status = 0
    type = "ContinuoError"

    def __init__(self, message: str, status: Optional[int] = None, type: Optional[str] = None,
                 word: Optional[str] = None, retry_after: Optional[float] = None,
                 expected_step: Optional[int] = None) -> None:
        self.message = message
        self.status = self.status if status is None else status
        self.type = type or self.type
        self.word = word or self.word
        self.retry_after = retry_after
        self.expected_step = expected_step
        super().__init__(message)

    @property
    def retryable(self) -> bool:
        """True if the server's answer says that the same request may succeed later."""
        return self.status in (429, 503) or self.retry_after is not None

    @property
    def help(self) -> str:
        """One sentence that says what a caller can do."""
        if self.word in HELP:
            return HELP[self.word]
        if self.retryable:
            return "The client repeated the request until its timeout; give it a larger timeout."
        if self.status >= 500:
            return "Look into the server's log for the reason; the same request would fail again."
        return "Change the request as the message says; the same request would fail again."

    def __str__(self) -> str:
        what = " ".join(str(part) for part in (self.status or "", self.word) if part)
        return f"{what}: {self.message}" if what else self.message


class ClientTimeoutError(ContinuoError, TimeoutError):
    """The client's own timeout passed without an answer. The step may have been committed."""

    word, type = "client_timeout", "ClientTimeoutError"


class ConnectionFailedError(ContinuoError, ConnectionError):
    """The server could not be reached, or the connection broke before the answer."""

    word, type = "connection_failed", "ConnectionFailedError"


class StreamClosedError(ContinuoError):
    """The server closed the stream for good. `code` is the code of the close."""

    word, type = "stream_closed", "StreamClosedError"
    code = 0


class BadRequestError(ContinuoError):
    """The error `bad_request` of the server."""

    word, status, type = "bad_request", 400, "BadRequestException"


class NotFoundError(ContinuoError):
    """The error `not_found` of the server."""

    word, status, type = "not_found", 404, "ResourceNotFoundException"


class ModelNotFoundError(ContinuoError):
    """The error `model_not_found` of the server."""

    word, status, type = "model_not_found", 404, "ModelNotFoundException"


class VersionNotFoundError(ContinuoError):
    """The error `version_not_found` of the server."""

    word, status, type = "version_not_found", 404, "ModelVersionNotFoundException"


class MethodNotAllowedError(ContinuoError):
    """The error `method_not_allowed` of the server."""

    word, status, type = "method_not_allowed", 405, "MethodNotAllowedException"


class RequestTimeoutError(ContinuoError, TimeoutError):
    """The error `timeout` of the server."""

    word, status, type = "timeout", 408, "RequestTimeoutException"


class ConflictError(ContinuoError):
    """The error `conflict` of the server."""

    word, status, type = "conflict", 409, "ConflictStatusException"


class ContendedError(ContinuoError):
    """The error `contended` of the server."""

    word, status, type = "contended", 409, "ConflictStatusException"


class TooLargeError(ContinuoError):
    """The error `too_large` of the server."""

    word, status, type = "too_large", 413, "RequestEntityTooLargeException"


class HeadersTooLargeError(ContinuoError):
    """The error `headers_too_large` of the server."""

    word, status, type = "headers_too_large", 431, "RequestHeaderFieldsTooLargeException"


class InvalidModelError(ContinuoError):
    """The error `invalid_model` of the server."""

    word, status, type = "invalid_model", 400, "InvalidModelException"


class InstallFailedError(ContinuoError):
    """The error `install_failed` of the server."""

    word, status, type = "install_failed", 400, "ModelException"


class VersionInUseError(ContinuoError):
    """The error `version_in_use` of the server."""

    word, status, type = "version_in_use", 403, "InvalidModelVersionException"


class QueueFullError(ContinuoError):
    """The error `queue_full` of the server."""

    word, status, type = "queue_full", 429, "ServiceUnavailableException"


class TooManySequencesError(ContinuoError):
    """The error `too_many_sequences` of the server."""

    word, status, type = "too_many_sequences", 429, "ServiceUnavailableException"


class SequenceUnknownError(ContinuoError):
    """The error `sequence_unknown` of the server."""

    word, status, type = "sequence_unknown", 404, "SequenceNotFoundException"


class SequenceExpiredError(ContinuoError):
    """The error `sequence_expired` of the server."""

    word, status, type = "sequence_expired", 410, "SequenceExpiredException"


class SequenceEndedError(ContinuoError):
    """The error `sequence_ended` of the server."""

    word, status, type = "sequence_ended", 410, "SequenceEndedException"


class ModelLoadingError(ContinuoError):
    """The error `model_loading` of the server."""

    word, status, type = "model_loading", 503, "ServiceUnavailableException"


class NoWorkerError(ContinuoError):
    """The error `no_worker` of the server."""

    word, status, type = "no_worker", 503, "ServiceUnavailableException"


class DrainingError(ContinuoError):
    """The error `draining` of the server."""

    word, status, type = "draining", 503, "ServiceUnavailableException"


class UnavailableError(ContinuoError):
    """The error `unavailable` of the server."""

    word, status, type = "unavailable", 503, "ServiceUnavailableException"


class StoreUnreachableError(ContinuoError):
    """The error `store_unreachable` of the server."""

    word, status, type = "store_unreachable", 503, "ServiceUnavailableException"


class HandlerFailedError(ContinuoError):
    """The error `handler_failed` of the server."""

    word, status, type = "handler_failed", 500, "InternalServerException"


class DeadlineError(ContinuoError):
    """The error `deadline` of the server."""

    word, status, type = "deadline", 500, "InternalServerException"


class WorkerDiedError(ContinuoError):
    """The error `worker_died` of the server."""

    word, status, type = "worker_died", 500, "InternalServerException"


class LoadFailedError(ContinuoError):
    """The error `load_failed` of the server."""

    word, status, type = "load_failed", 500, "InternalServerException"


class OutOfMemoryError(ContinuoError):
    """The error `out_of_memory` of the server."""

    word, status, type = "out_of_memory", 507, "InternalServerException"


class StateStoreError(ContinuoError):
    """The error `state_store` of the server."""

    word, status, type = "state_store", 507, "InternalServerException"


class StateDamagedError(ContinuoError):
    """The error `state_damaged` of the server."""

    word, status, type = "state_damaged", 507, "InternalServerException"


class StateTooLargeError(ContinuoError):
    """The error `state_too_large` of the server."""

    word, status, type = "state_too_large", 507, "InternalServerException"


class AnswerNotKeptError(ContinuoError):
    """The error `answer_not_kept` of the server."""

    word, status, type = "answer_not_kept", 409, "ConflictStatusException"


class KeyReusedError(ContinuoError):
    """The error `key_reused` of the server."""

    word, status, type = "key_reused", 422, "BadRequestException"


class CancelledError(ContinuoError):
    """The error `cancelled` of the server."""

    word, status, type = "cancelled", 499, "RequestCancelledException"


class ConfigError(ContinuoError):
    """The error `config` of the server."""

    word, status, type = "config", 400, "BadRequestException"


class ServerProtocolError(ContinuoError):
    """The error `protocol` of the server."""

    word, status, type = "protocol", 500, "InternalServerException"


class ServerIOError(ContinuoError):
    """The error `io` of the server."""

    word, status, type = "io", 500, "InternalServerException"


class InternalError(ContinuoError):
    """The error `internal` of the server."""

    word, status, type = "internal", 500, "InternalServerException"


class WorkflowNotFoundError(ContinuoError):
    """The error `workflow_not_found` of the server."""

    word, status, type = "workflow_not_found", 404, "WorkflowNotFoundException"


class DownloadFailedError(ContinuoError):
    """The error `download_failed` of the server."""

    word, status, type = "download_failed", 400, "DownloadArchiveException"


class TokenRefusedError(ContinuoError):
    """The error `token_refused` of the server."""

    word, status, type = "token_refused", 400, "InvalidKeyException"


class KeyRequiredError(ContinuoError):
    """The error `key_required` of the server."""

    word, status, type = "key_required", 401, "InvalidKeyException"


class CertificateRefusedError(ContinuoError):
    """The error `certificate_refused` of the server."""

    word, status, type = "certificate_refused", 403, "ForbiddenException"


class KeyForbiddenError(ContinuoError):
    """The error `key_forbidden` of the server."""

    word, status, type = "key_forbidden", 403, "ForbiddenException"


class KeyLimitError(ContinuoError):
    """The error `key_limit` of the server."""

    word, status, type = "key_limit", 429, "ServiceUnavailableException"


class TlsRequiredError(ContinuoError):
    """The error `tls_required` of the server."""

    word, status, type = "tls_required", 400, "BadRequestException"


class UnimplementedError(ContinuoError):
    """The error `unimplemented` of the server."""

    word, status, type = "unimplemented", 501, "ServiceUnavailableException"


class TooManyCallsError(ContinuoError):
    """The error `too_many_calls` of the server."""

    word, status, type = "too_many_calls", 429, "ServiceUnavailableException"


class VersionSwappedError(ContinuoError):
    """The error `version_swapped` of the server."""

    word, status, type = "version_swapped", 409, "ConflictStatusException"


class AlreadyExistsError(ContinuoError):
    """The error `already_exists` of the server."""

    word, status, type = "already_exists", 400, "ConflictStatusException"


class RestrictedError(ContinuoError):
    """The error `restricted` of the server."""

    word, status, type = "restricted", 403, "InvalidKeyException"


class LocalModelError(ContinuoError):
    """The error `local_model` of the server."""

    word, status, type = "local_model", 403, "ForbiddenException"


class OverloadedError(ContinuoError):
    """The error `overloaded` of the server."""

    word, status, type = "overloaded", 503, "ServiceUnavailableException"


class UntrustedArchiveError(ContinuoError):
    """The error `untrusted_archive` of the server."""

    word, status, type = "untrusted_archive", 403, "ForbiddenException"


class ForeignSiteError(ContinuoError):
    """The error `foreign_site` of the server."""

    word, status, type = "foreign_site", 403, "ForbiddenException"


class ReadOnlyError(ContinuoError):
    """The error `read_only` of the server."""

    word, status, type = "read_only", 403, "ForbiddenException"


class KeySupersededError(ContinuoError):
    """The error `key_superseded` of the server."""

    word, status, type = "key_superseded", 409, "ConflictStatusException"


class StepDoneError(ContinuoError):
    """The error `step_done` of the server."""

    word, status, type = "step_done", 409, "SequenceStepException"


class StepsLostError(ContinuoError):
    """The error `steps_lost` of the server."""

    word, status, type = "steps_lost", 409, "SequenceStepException"


class SequenceLostError(ContinuoError):
    """The error `sequence_lost` of the server."""

    word, status, type = "sequence_lost", 410, "SequenceEndedException"


class StepMismatchError(ContinuoError):
    """The error `step_mismatch` of the server."""

    word, status, type = "step_mismatch", 409, "SequenceStepException"


HELP: Dict[str, str] = {
    "client_timeout": "Call retry() to send the same step again; it is not done twice.",
    "connection_failed": "Check the address, the scheme (http or https) and the certificate.",
    "stream_closed": "Open a new stream; the sequence goes on after its last committed step.",
    "model_not_found": "Check the model's name; GET /models on the management address lists them.",
    "version_not_found": "Check the version; GET /models/MODEL/all shows the model's versions.",
    "token_refused": "Give the client the inference key: Client(url, token=KEY).",
    "key_required": "Give the client a valid key: Client(url, token=KEY).",
    "certificate_refused": "Give the client a certificate that the server accepts: Client(url, tls=CONTEXT).",
    "key_limit": "Send more slowly, or end sequences; the message names the limit of the key.",
    "key_forbidden": "Use a key with the scope or the model that the message names.",
    "too_large": "Send a smaller body, or start the server with a larger --max-request-size.",
    "timeout": "Add workers, or raise the model's clientTimeoutInMills.",
    "deadline": "Make the handler faster, or raise the time limit that the message names.",
    "sequence_unknown": "Begin the sequence with start=True.",
    "sequence_expired": "Begin the sequence anew with start=True.",
    "sequence_ended": "Begin the sequence anew with start=True.",
    "step_done": "Another client may use this sequence; expected_step is the next number.",
    "step_mismatch": "Another client may use this sequence; expected_step is the next number.",
    "steps_lost": "The server lost committed steps; send the steps from expected_step on again.",
    "answer_not_kept": "The step is committed, but its answer is gone; go on with the next step.",
    "key_superseded": "The step is committed, but its answer is gone; go on with the next step.",
}

BY_WORD: Dict[str, Type[ContinuoError]] = {
    each.word: each for each in list(globals().values())
    if isinstance(each, type) and issubclass(each, ContinuoError) and each.word}


def _integer(value: Any) -> Optional[int]:
    try:
        return int(value)
    except (TypeError, ValueError):
        return None


def _seconds(value: Any) -> Optional[float]:
    try:
        return max(0.0, float(value))
    except (TypeError, ValueError):
        return None


def from_answer(status: int, headers: Mapping[str, str], body: Any, text: str) -> ContinuoError:
    """Makes the error of an HTTP answer. The names of `headers` are in lower case."""
    members = body if isinstance(body, dict) else {}
    word = headers.get("continuo-error", "")
    message = members.get("message") or members.get("error") or text.strip() or f"status {status}"
    return BY_WORD.get(word, ContinuoError)(
        str(message), status, members.get("type"), word,
        _seconds(headers.get("retry-after")), _integer(headers.get("continuo-expected-step")))


def from_message(members: Mapping[str, Any]) -> ContinuoError:
    """Makes the error of a stream's message of the type `error`."""
    word = str(members.get("error", ""))
    return BY_WORD.get(word, ContinuoError)(
        str(members.get("message", "")), _integer(members.get("status")), members.get("exception"),
        word, _seconds(members.get("retry_after")), _integer(members.get("expected_step")))
