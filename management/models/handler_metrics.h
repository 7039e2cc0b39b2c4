/* management/models/handler_metrics.h - the handlers' metrics of TorchServe's metrics.yaml, for
 * workers. Any thread. */
#ifndef CN_MANAGEMENT_MODELS_HANDLER_METRICS_H
#define CN_MANAGEMENT_MODELS_HANDLER_METRICS_H

/* Returns the metrics of models in the file in force (cn_metric_rules()) as JSON, to be freed:
 * [["gauge", "Tokens", "count", ["Kind"]], ...]. "[]" without a file. */
char *cn_handler_metrics_json(void);

#endif
