"""BaseHandler: loads a model of PyTorch or ONNX and runs it. Needs torch in this environment."""

import abc
import importlib
import logging
import os
import time

import torch
from ts.handler_utils.timer import timed
from ts.utils.util import list_classes_from_module, load_label_mapping

logger = logging.getLogger(__name__)


class BaseHandler(abc.ABC):
    """handle() is preprocess(), inference() and postprocess(); handlers override these three."""

    def __init__(self):
        self.model = None
        self.mapping = None
        self.device = None
        self.initialized = False
        self.context = None
        self.model_pt_path = None
        self.manifest = None
        self.map_location = None
        self.explain = False
        self.target = 0
        self.profiler_args = {}

    # --- loading

    def initialize(self, context):
        self.model_yaml_config = getattr(context, "model_yaml_config", None) or {}
        self.manifest = context.manifest or {"model": {}}
        properties = context.system_properties
        model_dir = properties.get("model_dir")
        self._choose_device(properties.get("gpu_id"))
        about = self.manifest["model"]
        serialized = about.get("serializedFile")
        self.model_pt_path = os.path.join(model_dir, serialized) if serialized else None
        if about.get("modelFile"):
            self.model = self._load_pickled_model(model_dir, about["modelFile"],
                                                  self.model_pt_path)
            self.model.to(self.device)
            self.model.eval()
        elif self.model_pt_path is None:
            raise RuntimeError("the archive has neither a serialized file nor a model file, so "
                               "there is no model to load")
        elif self.model_pt_path.endswith(".pt"):
            self.model = self._load_torchscript_model(self.model_pt_path)
            self.model.eval()
        elif self.model_pt_path.endswith(".onnx"):
            self.model = self._load_onnx_model(self.model_pt_path)
        elif self.model_pt_path.endswith(".so") and self._use_torch_export_aot_compile():
            self.model = self._load_torch_export_aot_compile(self.model_pt_path)
        else:
            raise RuntimeError(f"cannot load {serialized}: expected a TorchScript file (.pt), an "
                               f"ONNX file (.onnx), or a model file (--model-file) beside it")
        self._compile()
        self.mapping = load_label_mapping(os.path.join(model_dir, "index_to_name.json"))
        self.initialized = True

    def _choose_device(self, gpu_id):
        if gpu_id is not None and torch.cuda.is_available():
            self.map_location = "cuda"
            self.device = torch.device(f"cuda:{gpu_id}")
        else:
            self.map_location = "cpu"
            self.device = torch.device("cpu")

    def _load_torchscript_model(self, model_pt_path):
        return torch.jit.load(model_pt_path, map_location=self.device)

    def _load_onnx_model(self, model_path):
        import onnxruntime

        available = onnxruntime.get_available_providers()
        wanted = ["CPUExecutionProvider"]
        if self.map_location == "cuda" and "CUDAExecutionProvider" in available:
            wanted.insert(0, "CUDAExecutionProvider")
        return onnxruntime.InferenceSession(model_path, providers=wanted)

    def _load_torch_export_aot_compile(self, model_so_path):
        return torch._export.aot_load(model_so_path, self.map_location)

    def _load_pickled_model(self, model_dir, model_file, model_pt_path):
        if not os.path.isfile(os.path.join(model_dir, model_file)):
            raise RuntimeError(f"the archive has no file {model_file}, which its manifest names as "
                               f"the model file")
        module = importlib.import_module(os.path.splitext(model_file)[0])
        found = list_classes_from_module(module)
        if len(found) != 1:
            names = ", ".join(each.__name__ for each in found) or "none"
            raise ValueError(f"{model_file} must define exactly one class; it defines: {names}")
        model = found[0]()
        if model_pt_path:
            model.load_state_dict(torch.load(model_pt_path, map_location=self.device))
        return model

    def _use_torch_export_aot_compile(self):
        settings = self.model_yaml_config.get("pt2")
        export = settings.get("export") if isinstance(settings, dict) else None
        return isinstance(export, dict) and export.get("aot_compile") is True

    def _compile(self):
        settings = self.model_yaml_config.get("pt2")
        if isinstance(settings, dict):
            settings = settings.get("compile", None if "export" in settings else settings)
        if not settings:
            return
        options = {"backend": settings} if isinstance(settings, str) else dict(settings)
        if options.pop("enable", True) is not True:
            return
        try:
            self.model = torch.compile(self.model, **options)
        except Exception as error:
            logger.warning("torch.compile(%s) failed, so the model runs without: %s", options,
                           error)

    # --- requests

    @timed
    def preprocess(self, data):
        return torch.as_tensor(data, device=self.device)

    @timed
    def inference(self, data, *args, **kwargs):
        with torch.inference_mode():
            return self.model(data.to(self.device), *args, **kwargs)

    @timed
    def postprocess(self, data):
        return data.tolist()

    def handle(self, data, context):
        begun = time.perf_counter()
        self.context = context
        if self._is_describe():
            output = [self.describe_handle()]
        else:
            prepared = self.preprocess(data)
            if self._is_explain():
                output = self.explain_handle(prepared, data)
            else:
                output = self.postprocess(self.inference(prepared))
        context.metrics.add_time("HandlerTime", round((time.perf_counter() - begun) * 1000, 2),
                                 None, "ms")
        return output

    def explain_handle(self, data_preprocess, raw_data):
        """The explanation of the first row, by get_insights() of the derived class."""
        inputs, target = None, 0
        if isinstance(raw_data[0], dict):
            inputs = raw_data[0].get("data") or raw_data[0].get("body")
            target = raw_data[0].get("target") or 0
        return self.get_insights(data_preprocess, inputs, target)

    def describe_handle(self):
        """What ?customized=true shows; handlers override it."""
        return None

    def get_device(self):
        return self.device

    def _is_explain(self):
        self.explain = self._asks_for("explain")
        return self.explain

    def _is_describe(self):
        return self._asks_for("describe")

    def _asks_for(self, name):
        return bool(self.context) and self.context.get_request_header(0, name) == "True"
