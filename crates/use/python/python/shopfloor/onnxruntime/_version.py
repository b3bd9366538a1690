"""The version of onnxruntime whose interface this is."""

VERSION = "1.32.0"
