"""Stands for the module of Triton's Python backend that models import, usually as pb_utils."""

from continuo.triton.log import Logger
from continuo.triton.messages import (TRITONSERVER_REQUEST_FLAG_SEQUENCE_END,
                                      TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
                                      TRITONSERVER_REQUEST_RELEASE_ALL,
                                      TRITONSERVER_REQUEST_RELEASE_RESCHEDULE,
                                      TRITONSERVER_RESPONSE_COMPLETE_FINAL, InferenceRequest,
                                      InferenceResponse, InferenceTrace, PreferredMemory,
                                      TRITONSERVER_MEMORY_CPU, TRITONSERVER_MEMORY_GPU,
                                      TritonError, TritonModelException,
                                      get_input_tensor_by_name, get_output_tensor_by_name,
                                      is_model_ready, load_model, unload_model)
from continuo.triton.metrics import MetricFamily
from continuo.triton.model_config import (ModelConfig, get_input_config_by_name, get_model_dir,
                                          get_output_config_by_name,
                                          using_decoupled_model_transaction_policy)
from continuo.triton.sender import InferenceResponseSender
from continuo.triton.tensor import (NUMPY_TO_TRITON_TYPE, TRITON_STRING_TO_NUMPY,
                                    TRITON_TO_NUMPY_TYPE, Tensor, deserialize_bytes_tensor,
                                    numpy_to_triton_type, serialize_byte_tensor,
                                    triton_string_to_numpy, triton_to_numpy_type)

__all__ = ["InferenceRequest", "InferenceResponse", "InferenceResponseSender", "InferenceTrace",
           "Logger", "MetricFamily", "ModelConfig", "NUMPY_TO_TRITON_TYPE", "PreferredMemory",
           "TRITONSERVER_MEMORY_CPU", "TRITONSERVER_MEMORY_GPU",
           "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END", "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START",
           "TRITONSERVER_REQUEST_RELEASE_ALL", "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE",
           "TRITONSERVER_RESPONSE_COMPLETE_FINAL", "TRITON_STRING_TO_NUMPY",
           "TRITON_TO_NUMPY_TYPE", "Tensor", "TritonError", "TritonModelException",
           "deserialize_bytes_tensor", "get_input_config_by_name", "get_input_tensor_by_name",
           "get_model_dir", "get_output_config_by_name", "get_output_tensor_by_name",
           "is_model_ready", "load_model", "numpy_to_triton_type", "serialize_byte_tensor",
           "triton_string_to_numpy", "triton_to_numpy_type", "unload_model",
           "using_decoupled_model_transaction_policy"]
