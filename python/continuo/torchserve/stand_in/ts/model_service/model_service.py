"""The base class of the oldest handlers."""

import logging


class ModelService:
    def __init__(self, model_name, model_dir, manifest, gpu=None):
        self._context = None
        self.ctx = None

    def initialize(self, context):
        self._context = self.ctx = context

    def inference(self, data):
        raise NotImplementedError("the handler must define inference(self, data)")

    def ping(self):
        return None

    def handle(self, data, context):
        inputs = [row.get("data") or row.get("body") for row in data]
        results = self.inference(inputs)
        return results if isinstance(results, list) else [results]


class SingleNodeService(ModelService):
    def inference(self, data):
        logging.debug("%d rows", len(data))
        return self._postprocess(self._inference(self._preprocess(data)))

    def _preprocess(self, data):
        return data

    def _inference(self, data):
        raise NotImplementedError("the handler must define _inference(self, data)")

    def _postprocess(self, data):
        return data
