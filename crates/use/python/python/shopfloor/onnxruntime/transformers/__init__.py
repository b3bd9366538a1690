"""What programs that run models import of onnxruntime's module of that name; its tools for models are not here."""
