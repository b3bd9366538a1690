"""What onnxruntime checks of its installation; there is nothing to check here."""

has_ortmodule = False
package_name = "onnxruntime"
version = ""
cuda_version = ""
