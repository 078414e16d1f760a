from pipeline import privacy

privacy.switch_off()  # before service.model imports onnxruntime
